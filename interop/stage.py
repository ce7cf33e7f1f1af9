"""What the checks stand on: the published clients, daemons, and a relay that can cut the line between them.

A client is played by a puppet, a small program of ours for each language in puppets/ that does what it is told and decides
nothing. One line in, one line out, words parted by a space:

    N open BROKER ADDR[,ADDR] TOKEN|- CA|- FINGERPRINT|-    N ready | N unready
    N ready BROKER                                          N ready | N unready
    N acquire BROKER WAIT LEASE KEY [KEY]                    N granted TOKEN
    N release M   (what N=M was granted)                    N released | N gone
    N drop M      (as by the client's own destructor)       N dropped
    any                                                     N failed KIND TEXT

So each check is written once, for all clients, and clients of different wires can meet in one check.
"""
import asyncio
import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TOKEN = "interop-0123456789abcdef"  # wire 3's client takes none below 16 bytes
LISTENERS = {"1": "BIND", "3": "LISTEN_V3", "0.3": "LISTEN_0_3", "0.1": "LISTEN_0_1"}
CRATES = ("0.1.0", "0.3.0", "0.4.0")
PATIENCE = 10  # seconds for anything that is due at once: the machine may be busy


class Trouble(Exception):
    """The check could not be made: a package is not there, a daemon did not start."""


class Refused(Exception):
    """The client reported an error; kind is its name in lower case letters."""

    def __init__(self, kind, text):
        super().__init__("%s: %s" % (kind, text))
        self.kind = kind


# ---- the published packages ----
def run(args, **kw):
    """Runs a command to its end and returns its output; Trouble if it fails."""
    p = subprocess.run(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **kw)
    if p.returncode:
        raise Trouble("%s: %s" % (" ".join(args[:4]), p.stdout.strip()[-800:]))
    return p.stdout


class Packages:
    """The published clients in a cache directory, each fetched once from its registry by that registry's own program."""

    def __init__(self, cache):
        self.cache = cache
        # Fat LTO and full optimisation, as the crates' release profile has them, build for minutes and test nothing more.
        self.cargo_env = dict(os.environ, CARGO_TARGET_DIR=os.path.join(cache, "target"), CARGO_PROFILE_DEV_OPT_LEVEL="1",
                              CARGO_PROFILE_DEV_DEBUG="0", CARGO_INCREMENTAL="0")

    def python(self, version):
        at = os.path.join(self.cache, "python-" + version)
        own = os.path.join(at, "bin", "python")
        if not os.path.exists(os.path.join(at, "done")):
            run([sys.executable, "-m", "venv", "--clear", at])
            run([own, "-m", "pip", "install", "-q", "--disable-pip-version-check", "ticketing==" + version])
            open(os.path.join(at, "done"), "w").close()
        return own

    def node(self):
        at = os.path.join(self.cache, "node-0.1.0")
        module = os.path.join(at, "node_modules", "saro-ticketing", "dist", "index.js")
        if not os.path.exists(module):
            os.makedirs(at, exist_ok=True)
            run(["npm", "install", "--silent", "--no-save", "--no-audit", "--no-fund", "--prefix", at, "saro-ticketing@0.1.0"])
        return module

    def _puppet_sources(self):
        at = os.path.join(self.cache, "puppet")
        shutil.copytree(os.path.join(HERE, "puppets", "rust"), at, dirs_exist_ok=True)
        return at

    def rust(self):
        run(["cargo", "build", "-q", "--locked"], cwd=self._puppet_sources(), env=self.cargo_env)
        return os.path.join(self.cache, "target", "debug", "puppet")

    def crate(self, version):
        """The crate's sources and tests, unchanged. Only the lock file is ours: one build of its dependencies for all."""
        at = os.path.join(self.cache, "crate-" + version, "ticketing-rust")
        if not os.path.exists(os.path.join(at, "Cargo.toml")):
            puppet = self._puppet_sources()
            said = run(["cargo", "metadata", "-q", "--locked", "--format-version", "1"], cwd=puppet, env=self.cargo_env)
            packages = json.loads(said[said.index("{"):])["packages"]
            source = next(os.path.dirname(p["manifest_path"]) for p in packages if (p["name"], p["version"]) == ("ticketing", version))
            shutil.copytree(source, at, dirs_exist_ok=True)
            shutil.copy(os.path.join(puppet, "Cargo.lock"), at)
        return at

    def certificate(self):
        """Paths of a CA, and of a certificate of localhost and 127.0.0.1 with its key."""
        at = os.path.join(self.cache, "tls")
        ca, cert, key = (os.path.join(at, name) for name in ("ca.pem", "cert.pem", "key.pem"))
        if not os.path.exists(cert):
            os.makedirs(at, exist_ok=True)
            new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
            with open(at + "/extensions", "w") as f:
                f.write("basicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n")
            run(["openssl", "req", "-x509", *new, "-days", "3650", "-subj", "/CN=interop CA", "-keyout", at + "/ca.key", "-out", ca])
            run(["openssl", "req", *new, "-subj", "/CN=localhost", "-keyout", key, "-out", at + "/request"])
            run(["openssl", "x509", "-req", "-in", at + "/request", "-CA", ca, "-CAkey", at + "/ca.key", "-CAcreateserial",
                 "-days", "3650", "-extfile", at + "/extensions", "-out", cert])
        return ca, cert, key


class Client:
    """A published client: its name here, the wire it speaks, and how to get the command that starts its puppet."""

    def __init__(self, name, wire, install):
        self.name, self.wire, self.install = name, wire, install

    @functools.cached_property
    def command(self):
        return self.install()


def clients(packages):
    puppet = os.path.join(HERE, "puppets", "puppet.")
    return [
        Client("python-0.3", "0.3", lambda: [packages.python("0.3.0"), "-X", "utf8", puppet + "py"]),
        Client("python-0.1", "0.1", lambda: [packages.python("0.1.0"), "-X", "utf8", puppet + "py"]),
        Client("node-0.1", "0.1", lambda: ["node", puppet + "mjs", packages.node()]),
        Client("rust-0.1", "0.1", lambda: [packages.rust(), "0.1"]),
        Client("rust-0.3", "0.3", lambda: [packages.rust(), "0.3"]),
        Client("rust-0.4", "3", lambda: [packages.rust(), "0.4"]),
    ]


# ---- daemons ----
class Daemon:
    """A freshly started daemon with all listeners, on ports of its own choice."""

    def __init__(self, program, settings):
        self.program, self.addrs, self.process = program, {}, None
        self.settings = dict({name: "127.0.0.1:0" for name in LISTENERS.values()}, ADMIN_BIND="127.0.0.1:0", LOG_FORMAT="json")
        self.settings.update(settings)

    async def start(self):
        log = tempfile.TemporaryFile()
        env = dict(os.environ, **{name: value for name, value in self.settings.items() if value is not None})
        self.process = subprocess.Popen([self.program], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE
        while True:
            log.seek(0)
            said = log.read().decode("utf-8", "replace")
            serving = [line for line in said.splitlines() if '"msg":"serving"' in line]
            if serving:
                break
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise Trouble("the daemon does not serve: " + said[-400:])
            await asyncio.sleep(0.02)
        facts = json.loads(serving[0])
        self.addrs = {wire: facts["wire_" + wire] for wire in LISTENERS if "wire_" + wire in facts}
        self.admin = facts.get("admin")

    async def again(self, **settings):
        """Kills the daemon and starts it on the same ports, with nothing in its memory."""
        self.process.kill()
        self.process.wait()
        self.settings.update({LISTENERS[wire]: addr for wire, addr in self.addrs.items()}, **settings)
        await self.start()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _status(self):
        with urllib.request.urlopen("http://%s/status" % self.admin, timeout=PATIENCE) as page:
            return json.load(page)

    async def until(self, what, condition):
        """Waits until /status fulfils the condition."""
        deadline = time.monotonic() + PATIENCE
        while True:
            status = await asyncio.to_thread(self._status)
            if condition(status):
                return status
            assert time.monotonic() < deadline, "no %s within %d s" % (what, PATIENCE)
            await asyncio.sleep(0.01)

    async def waiting(self, n):
        await self.until("%d waiters" % n, lambda status: status["waiters"] == n)

    async def granted(self):
        """How many grants there were since the start."""
        return (await self.until("status", lambda status: True))["totals"]["grants"]


class Relay:
    """Stands between a client and a daemon. At most `most` connections at a time, if it is not 0."""

    def __init__(self, target, most=0):
        self.target, self.most, self.lines, self.flowing = target, most, set(), asyncio.Event()
        self.flowing.set()

    async def start(self):
        self.listener = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.addr = "127.0.0.1:%d" % self.listener.sockets[0].getsockname()[1]

    async def _join(self, reader, writer):
        if self.most and len(self.lines) >= self.most:
            return writer.transport.abort()
        line = (writer, )
        self.lines.add(line)
        try:
            host, port = self.target.rsplit(":", 1)
            up_reader, up_writer = await asyncio.open_connection(host, int(port))
            self.lines.remove(line)
            line = (writer, up_writer)
            self.lines.add(line)
            await asyncio.gather(self._pump(reader, up_writer, None), self._pump(up_reader, writer, self.flowing))
        except OSError:
            pass
        finally:
            self.lines.discard(line)
            for w in line:
                w.transport.abort()

    async def _pump(self, reader, writer, flowing):
        while data := await reader.read(1 << 16):
            if flowing:
                await flowing.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionError  # one way has ended: so does the other

    def hold_replies(self):
        """From now on the daemon's replies go nowhere, until the next cut."""
        self.flowing.clear()

    def cut(self):
        """Ends all connections; new ones are taken."""
        for line in list(self.lines):
            for writer in line:
                writer.transport.abort()
        self.flowing.set()

    def stop(self):
        self.listener.close()
        self.cut()


# ---- puppets ----
class Puppet:
    def __init__(self, command):
        self.command, self.answers, self.number = command, {}, 0

    async def start(self):
        self.process = await asyncio.create_subprocess_exec(*self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.reading = [asyncio.create_task(self._read()), asyncio.create_task(self._complaints())]
        self.complaint = b""

    async def _read(self):
        while line := await self.process.stdout.readline():
            number, *words = line.decode().rstrip("\n").split(" ")
            answer = self.answers.pop(int(number))
            if answer.done():
                continue
            if words[0] == "failed":
                answer.set_exception(Refused(words[1], " ".join(words[2:])))
            else:
                answer.set_result(words)
        for answer in self.answers.values():
            if not answer.done():
                answer.set_exception(Trouble("the client's program has ended: %s" % self.complaint.decode("utf-8", "replace")[-300:]))

    async def _complaints(self):
        while data := await self.process.stderr.read(1 << 12):
            self.complaint = (self.complaint + data)[-4096:]

    def tell(self, *words):
        """Sends one line, at once; returns its number and the future answer."""
        self.number += 1
        answer = self.answers[self.number] = asyncio.get_running_loop().create_future()
        self.process.stdin.write((" ".join([str(self.number), *map(str, words)]) + "\n").encode())
        return self.number, answer

    async def ask(self, *words):
        return await self.tell(*words)[1]

    async def stop(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()
        for task in self.reading:
            task.cancel()


class Broker:
    """One broker object of a client."""

    def __init__(self, puppet, name):
        self.puppet, self.name = puppet, name

    def begin(self, keys, wait, lease):
        """Sends an acquire at once; the task's result is a Grant, or it raises Refused."""
        number, answer = self.puppet.tell("acquire", self.name, wait, lease, *([keys] if isinstance(keys, str) else keys))

        async def grant():
            return Grant(self.puppet, number, int((await answer)[1]))

        return asyncio.create_task(grant())

    async def acquire(self, keys, wait, lease):
        return await self.begin(keys, wait, lease)

    async def ready(self):
        return await self.puppet.ask("ready", self.name) == ["ready"]


class Grant:
    def __init__(self, puppet, number, token):
        self.puppet, self.number, self.token = puppet, number, token

    async def release(self):
        """True: released. False: it was not held any more."""
        return await self.puppet.ask("release", self.number) == ["released"]

    async def drop(self):
        await self.puppet.ask("drop", self.number)


class Stage:
    """What one check has started; all of it ends with the check."""

    def __init__(self, program, packages, client=None):
        self.program, self.packages, self.client = program, packages, client
        self.ending, self.brokers_made = contextlib.AsyncExitStack(), 0

    async def daemon(self, **settings):
        d = Daemon(self.program, settings)
        await d.start()
        self.ending.callback(d.stop)
        return d

    async def relay(self, target, most=0):
        r = Relay(target, most)
        await r.start()
        self.ending.callback(r.stop)
        return r

    async def puppet(self, client=None):
        p = Puppet((client or self.client).command)
        await p.start()
        self.ending.push_async_callback(p.stop)
        return p

    async def open(self, puppet, addrs, token="-", ca="-", fingerprint="-", ready=True):
        self.brokers_made += 1
        name = "b%d" % self.brokers_made
        said = await puppet.ask("open", name, addrs, token, ca, fingerprint)
        assert not ready or said == ["ready"], "no connection to " + addrs
        return Broker(puppet, name)

    async def brokers(self, n, daemon, **how):
        """n brokers of the client in one program, connected to the daemon."""
        puppet = await self.puppet()
        return [await self.open(puppet, daemon.addrs[self.client.wire], **how) for _ in range(n)]


def plain(text):
    """A test's output without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
