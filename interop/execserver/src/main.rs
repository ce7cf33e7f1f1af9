//! Stands where the chaos test of crate 0.3.0 builds its server, and becomes the daemon in TICKETINGD. The test passes the
//! settings by upstream's names, which the daemon reads (docs/MIGRATING.md).

use std::os::unix::process::CommandExt;

fn main() {
    let daemon = std::env::var("TICKETINGD").expect("TICKETINGD is the daemon's path");
    panic!("{}", std::process::Command::new(daemon).exec());
}
