//! Does with the published Rust client 0.1.0, 0.3.0 or 0.4.0 (the argument) what stage.py tells it; the words are
//! described there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};

#[derive(Clone)]
enum Broker {
    V01(v01::TicketBroker),
    V03(v03::TicketBroker),
    V04(v04::TicketBroker),
}

enum Held {
    V01(v01::Ticket),
    V03(v03::Ticket),
    One(v04::Ticket),
    Set(v04::TicketSet),
}

/// An error as its variant's name in lower case and its text.
fn failed(e: impl std::error::Error) -> String {
    let debug = format!("{e:?}");
    let kind = debug.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    format!("failed {} {e}", kind.to_lowercase())
}

/// Builds a broker of 0.1.0 or 0.3.0, whose builders are alike.
macro_rules! text_broker {
    ($client:ident, $addrs:expr, $token:expr, $ca:expr) => {{
        let tls = if $ca == "-" { $client::TlsMode::Off } else { $client::TlsMode::Ca($ca.into()) };
        $client::TicketBroker::builder().addrs($addrs).token($token).tls(tls).connect().map_err(failed)?
    }};
}

impl Broker {
    fn open(version: &str, addrs: Vec<String>, token: &str, ca: &str, fingerprint: &str) -> Result<Broker, String> {
        let token = if token == "-" { "" } else { token };
        Ok(match version {
            "0.1" => Broker::V01(text_broker!(v01, addrs, token, ca)),
            "0.3" => Broker::V03(text_broker!(v03, addrs, token, ca)),
            _ => {
                let mut b = v04::TicketBroker::builder().addrs(addrs).token(token);
                if token.is_empty() {
                    b = b.allow_loopback_no_auth();
                }
                if ca != "-" {
                    b = b.tls(v04::TlsMode::Ca(ca.into()));
                }
                if fingerprint != "-" {
                    let identity_fingerprint =
                        std::array::from_fn(|i| u8::from_str_radix(&fingerprint[2 * i..2 * i + 2], 16).expect("64 hex digits"));
                    b = b.mode(v04::BrokerMode::Cluster { identity_fingerprint });
                }
                Broker::V04(b.connect().map_err(failed)?)
            }
        })
    }

    async fn ready(&self) -> bool {
        let limit = Duration::from_secs(5);
        match self {
            Broker::V01(b) => b.wait_ready(limit).await,
            Broker::V03(b) => b.wait_ready(limit).await,
            Broker::V04(b) => b.wait_ready(limit).await,
        }
    }

    async fn acquire(&self, wait: Duration, lease: Duration, keys: &[&str]) -> Result<(Held, u64), String> {
        let none = Duration::ZERO;
        Ok(match (self, keys) {
            (Broker::V01(b), _) => {
                let t = b.acquire(keys[0], wait, lease).await.map_err(failed)?;
                let token = t.token();
                (Held::V01(t), token)
            }
            (Broker::V03(b), _) => {
                let t = b.acquire(keys[0], wait, lease).await.map_err(failed)?;
                let token = t.token();
                (Held::V03(t), token)
            }
            (Broker::V04(b), [key]) => {
                let t = b.acquire(key, wait, lease, none).await.map_err(failed)?;
                let token = t.token();
                (Held::One(t), token)
            }
            (Broker::V04(b), _) => {
                let t = b.acquire_set(keys, wait, lease, none).await.map_err(failed)?;
                let token = t.token();
                (Held::Set(t), token)
            }
        })
    }
}

impl Held {
    async fn release(self) -> Result<bool, String> {
        let whole = |o| o == v04::ReleaseOutcome::Released;
        match self {
            Held::V01(t) => t.release().await.map_err(failed),
            Held::V03(t) => t.release().await.map_err(failed),
            Held::One(t) => t.release().await.map(whole).map_err(failed),
            Held::Set(t) => t.release().await.map(whole).map_err(failed),
        }
    }
}

#[derive(Default)]
struct Puppet {
    version: String,
    brokers: Mutex<HashMap<String, Broker>>,
    held: Mutex<HashMap<String, Held>>,
}

impl Puppet {
    async fn obey(&self, number: &str, words: &[&str]) -> Result<String, String> {
        let broker = |name: &str| self.brokers.lock().unwrap()[name].clone();
        let take = |of: &str| self.held.lock().unwrap().remove(of).ok_or("failed unknown no such grant");
        let seconds = |word: &str| Duration::from_secs(word.parse().expect("seconds"));
        match *words {
            ["open", name, addrs, token, ca, fingerprint] => {
                let addrs = addrs.split(',').map(String::from).collect();
                let b = Broker::open(&self.version, addrs, token, ca, fingerprint)?;
                self.brokers.lock().unwrap().insert(name.into(), b.clone());
                Ok(if b.ready().await { "ready" } else { "unready" }.into())
            }
            ["ready", name] => Ok(if broker(name).ready().await { "ready" } else { "unready" }.into()),
            ["acquire", name, wait, lease, ref keys @ ..] => {
                let (held, token) = broker(name).acquire(seconds(wait), seconds(lease), keys).await?;
                self.held.lock().unwrap().insert(number.into(), held);
                Ok(format!("granted {token}"))
            }
            ["release", of] => Ok(if take(of)?.release().await? { "released" } else { "gone" }.into()),
            ["drop", of] => {
                drop(take(of)?);
                Ok("dropped".into())
            }
            _ => Err("failed unknown no such word".into()),
        }
    }
}

#[tokio::main]
async fn main() {
    let version = std::env::args().nth(1).expect("0.1, 0.3 or 0.4");
    let puppet = Arc::new(Puppet { version, ..Puppet::default() });
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let puppet = Arc::clone(&puppet);
        tokio::spawn(async move {
            let words: Vec<&str> = line.split(' ').collect();
            let text = puppet.obey(words[0], &words[1..]).await.unwrap_or_else(|e| e);
            println!("{} {text}", words[0]);
        });
    }
    std::process::exit(0);
}
