"""Runs the tests that the published crates ship, unchanged, against our daemon and our cluster.

They want the ports 5225 to 5227 of 127.0.0.1, the chaos test of 0.3.0 those from 15225; the ports must be free.
"""
import contextlib
import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time

from stage import HERE, TOKEN, Trouble, plain, run

PORTS = (5225, 5226, 5227)
ADDRS = ",".join("127.0.0.1:%d" % port for port in PORTS)
WIRES = {"0.1.0": "0.1", "0.3.0": "0.3", "0.4.0": "3"}
# The benches of 0.1.0 and 0.3.0 let 40,000 acquires wait at once. 0.1 has no busy that its client could wait out; 0.3's client
# tries again and again, and on a busy machine not all are through within the 30 s that the test allows.
ROOM = {"MAX_WAITERS": "16384", "MAX_TOTAL_WAITERS": "65536"}
DOWN = 2        # seconds that a killed node stays away
BETWEEN = 6     # seconds between two kills
SETTLE = 10     # seconds without kills at the end


def reachable(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def free(ports, patience=30):
    """Waits until nobody listens on the ports."""
    deadline = time.monotonic() + patience
    while taken := [port for port in ports if reachable(port)]:
        if time.monotonic() > deadline:
            raise Trouble("port %d is in use" % taken[0])
        time.sleep(0.1)


@contextlib.contextmanager
def daemon(program, settings, port=None):
    """The daemon with these settings, once it listens on the port."""
    if port:
        free([port])
    with open(os.devnull, "w") as null:
        p = subprocess.Popen([program], env=dict(os.environ, ADMIN_BIND="", LOG_LEVEL="warn", **settings), stdin=subprocess.DEVNULL, stdout=null)
    try:
        deadline = time.monotonic() + 10
        while port and not reachable(port):
            if p.poll() is not None or time.monotonic() > deadline:
                raise Trouble("the daemon does not serve on port %d" % port)
            time.sleep(0.02)
        yield p
    finally:
        p.terminate()
        try:
            p.wait(10)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


def verdict(tally, name, code, out):
    """A test run passed if cargo says so and at least one test ran."""
    out = plain(out)
    ran = [int(n) for n in re.findall(r"^test result: ok\. (\d+) passed", out, re.M)]
    if code == 0 and ran and ran[-1]:
        told = [line for line in out.splitlines() if re.search(r"RESULT| total in |burst completed|consistency OK", line)]
        tally.say("ok", name, re.sub(r"^.*?(INFO \w+: |RESULT )", "", told[-1]) if told else "")
        return
    told = [line for line in out.splitlines() if re.search(r"panicked|RESULT|error|left:|right:|not done", line)]
    tally.say("FAIL", name, "code %d: %s" % (code, " | ".join(told[-5:]) or out[-400:]))


class Tests:
    """The shipped tests of one crate."""

    def __init__(self, packages, version):
        self.packages, self.version, self.at = packages, version, packages.crate(version)
        self.env = packages.cargo_env

    def command(self, test):
        return ["cargo", "test", "--features", "tracing", "--test", test]

    def build(self, test, env=None):
        run(self.command(test) + ["--no-run"], cwd=self.at, env=env or self.env)

    def start(self, test, filter_="", env=None, **more):
        args = ["--", "--include-ignored", "--nocapture", "--test-threads=1"] + ([filter_] if filter_ else [])
        return subprocess.Popen(self.command(test) + args, cwd=self.at, env=dict(env or self.env, **more), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)


def ended(p, limit):
    """Waits for a test run; when the limit is over its process group ends. Returns its code and output."""
    try:
        out, _ = p.communicate(timeout=limit)
        return p.returncode, out
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        return 124, p.communicate()[0] + "\nnot done within %d s" % limit


def single(a, wanted, packages, tally):
    """The tests for one node."""
    listen = {"0.1.0": "LISTEN_0_1", "0.3.0": "LISTEN_0_3", "0.4.0": "LISTEN_V3"}
    for version, setting in listen.items():
        for test, filter_ in (("nc_example_simple_test", ""), ("nc_bank_test", ""), ("nc_bench_test", "bench"), ("nc_bench_test", "burst")):
            name = "crate-%s/%s" % (version, test if filter_ != "burst" else test + ":burst")
            if not wanted(name) or filter_ == "burst" and version != "0.4.0":
                continue
            try:
                tests = Tests(packages, version)
                tests.build(test)
                # BIND is 5225 by default, which is the port of the wire under test here.
                settings = {"BIND": "", setting: "127.0.0.1:5225", **(ROOM if version != "0.4.0" and filter_ else {})}
                with daemon(a.server, settings, 5225):
                    verdict(tally, name, *ended(tests.start(test, filter_), 120))
            except (Trouble, OSError) as e:
                tally.say("FAIL", name, e)
    if wanted("crate-0.4.0/quickstart"):
        quickstart(a, packages, tally)
    if wanted("crate-0.3.0/chaos-1-node"):
        chaos(a, packages, tally, "crate-0.3.0/chaos-1-node", 1, 10)


def quickstart(a, packages, tally):
    """The example of 0.4.0's documentation."""
    name = "crate-0.4.0/quickstart"
    try:
        at = packages.crate("0.4.0")
        with daemon(a.server, {"BIND": "", "LISTEN_V3": "127.0.0.1:5225", "CLIENT_TOKENS": TOKEN}, 5225):
            out = run(["cargo", "run", "-q", "--example", "quickstart"], cwd=at,
                      env=dict(packages.cargo_env, TICKETING_ADDR="127.0.0.1:5225", TICKETING_CLIENT_TOKEN=TOKEN))
        tally.say("ok" if re.search(r": \d+\s*$", out) else "FAIL", name, out)
    except (Trouble, OSError) as e:
        tally.say("FAIL", name, e)


def chaos(a, packages, tally, name, nodes, seconds):
    """0.3.0's chaos test, which builds, starts and kills its server itself, from a folder beside the crate.

    It passes with no error and no timeout only.
    """
    try:
        tests = Tests(packages, "0.3.0")
        server = os.path.join(os.path.dirname(tests.at), "ticketing-server")
        shutil.copytree(os.path.join(HERE, "execserver"), server, dirs_exist_ok=True)
        os.makedirs(os.path.join(server, "target"), exist_ok=True)  # the test writes its nodes' logs there
        env = {k: v for k, v in tests.env.items() if k != "CARGO_TARGET_DIR"}  # it looks for the program beside its sources
        run(["cargo", "build", "-q", "--release"], cwd=server, env=env)
        tests.build("nc_cluster_chaos_test", env)
        free(range(15225, 15225 + nodes))
        p = tests.start("nc_cluster_chaos_test", env=env, chaos_nodes=str(nodes), chaos_secs=str(seconds), TICKETINGD=a.server)
        verdict(tally, name, *ended(p, seconds + 120))
    except (Trouble, OSError) as e:
        tally.say("FAIL", name, e)


class Cluster:
    """Three nodes, as --cluster-cmd runs them.

    It gets the addresses in INTEROP_V3, INTEROP_0_3, INTEROP_0_1 (empty: any), the client token in INTEROP_TOKEN and the
    daemon in INTEROP_SERVER, prints one line of JSON when the cluster serves, and starts an empty node again in the slot
    of each line `restart SLOT` that it reads.
    """

    def __init__(self, a, wire, token):
        free(PORTS)
        env = dict(os.environ, INTEROP_SERVER=a.server, INTEROP_TOKEN=token, INTEROP_V3="", INTEROP_0_3="", INTEROP_0_1="")
        env["INTEROP_" + {"3": "V3"}.get(wire, wire.replace(".", "_"))] = ADDRS
        self.p = subprocess.Popen(shlex.split(a.cluster_cmd), cwd=os.path.dirname(HERE), env=env, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True, start_new_session=True)
        self._read()

    def _read(self):
        if not select.select([self.p.stdout], [], [], 60)[0]:
            self.end()
            raise Trouble("the cluster does not serve within 60 s")
        line = self.p.stdout.readline()
        try:
            self.facts = json.loads(line)
        except ValueError:
            self.end()
            raise Trouble("the cluster command said %r" % line) from None

    def kill(self, slot):
        os.kill(self.facts["pids"][slot], signal.SIGKILL)

    def restart(self, slot):
        self.p.stdin.write("restart %d\n" % slot)
        self.p.stdin.flush()
        self._read()

    def end(self):
        if self.p.poll() is None:
            self.p.terminate()
        try:
            self.p.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.p.pid, signal.SIGKILL)
            self.p.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def clusters(a, wanted, packages, tally):
    """The tests for clusters; under soak and chaos one node after the other is killed and started empty."""
    for version, test, kills in (("0.1.0", "nc_cluster_test", False), ("0.3.0", "nc_cluster_test", False), ("0.4.0", "nc_cluster_test", False),
                                 ("0.3.0", "nc_cluster_soak_test", True), ("0.4.0", "nc_cluster_soak_test", True),
                                 ("0.4.0", "nc_cluster_chaos_test", True)):
        name = "crate-%s/%s" % (version, test)
        if wanted(name):
            try:
                clustered(a, packages, tally, name, version, test, kills)
            except (Trouble, OSError) as e:
                tally.say("FAIL", name, e)
    if wanted("crate-0.3.0/chaos-3-nodes"):
        chaos(a, packages, tally, "crate-0.3.0/chaos-3-nodes", 3, a.seconds)


def clustered(a, packages, tally, name, version, test, kills):
    token = TOKEN if version == "0.4.0" else ""  # the older tests connect without one
    tests = Tests(packages, version)
    tests.build(test)
    with Cluster(a, WIRES[version], token) as c:
        p = tests.start(test, soak_secs=str(a.seconds), TICKETING_CHAOS_SECS=str(a.seconds), TICKETING_CHAOS_ADDRS=ADDRS,
                        TICKETING_CLIENT_TOKEN=token, TICKETING_IDENTITY_FINGERPRINT=c.facts["identity_fingerprint"])
        out, slot, begin, due = [], 0, time.monotonic(), time.monotonic() + BETWEEN
        reader = threading.Thread(target=lambda: out.extend(p.stdout))
        reader.start()
        while p.poll() is None:
            time.sleep(0.1)
            now = time.monotonic()
            if now > begin + a.seconds + 120:
                os.killpg(p.pid, signal.SIGKILL)
                out.append("not done within %d s\n" % (a.seconds + 120))
                break
            if kills and due < now < begin + a.seconds - SETTLE:
                c.kill(slot)
                time.sleep(DOWN)
                c.restart(slot)
                slot, due = (slot + 1) % len(PORTS), time.monotonic() + BETWEEN
        code = p.wait()
        reader.join()
        verdict(tally, name, code, "".join(out))
