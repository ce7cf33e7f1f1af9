"""Runs the published clients against our daemon. See scripts/interop."""
import argparse
import asyncio
import os
import sys
import tempfile

import checks
import shipped
from stage import HERE, Packages, Refused, Stage, Trouble, clients, run

AT_ONCE = 6   # checks at a time; they mostly wait
LIMIT = 90    # seconds for a check


class Tally:
    def __init__(self):
        self.counts = {"ok": 0, "FAIL": 0, "skip": 0}

    def say(self, verdict, name, why=""):
        self.counts[verdict] += 1
        print(("%s %s %s" % (verdict, name, " ".join(str(why).split())[:500])).strip(), flush=True)

    def end(self):
        print("%(ok)d passed, %(FAIL)d failed, %(skip)d skipped" % self.counts)
        return 1 if self.counts["FAIL"] or not self.counts["ok"] else 0


async def one_check(stage, f, *more):
    async with stage.ending:
        await asyncio.wait_for(f(stage, *more), LIMIT)


async def all_checks(wanted, daemon, packages, tally):
    everyone, places, plan = clients(packages), asyncio.Semaphore(AT_ONCE), []

    async def guarded(stage, f, *more):
        async with places:
            await one_check(stage, f, *more)

    for client in everyone:
        mine = [f for f, wires in checks.EACH if client.wire in wires and wanted("%s/%s" % (client.name, f.__name__))]
        try:
            mine and client.command
        except (Trouble, OSError) as e:
            tally.say("FAIL", client.name, e)
            continue
        plan += [("%s/%s" % (client.name, f.__name__), guarded(Stage(daemon, packages, client), f)) for f in mine]
    plan += [("all/" + f.__name__, guarded(Stage(daemon, packages), f, everyone)) for f in checks.TOGETHER if wanted("all/" + f.__name__)]
    plan = [(name, asyncio.create_task(work)) for name, work in plan]
    for name, task in plan:
        try:
            await task
            tally.say("ok", name)
        except asyncio.TimeoutError:
            tally.say("FAIL", name, "not done within %d s" % LIMIT)
        except (AssertionError, Refused, Trouble, OSError) as e:
            tally.say("FAIL", name, "%s: %s" % (type(e).__name__, e))


def main():
    ap = argparse.ArgumentParser(prog="scripts/interop", description="Runs the published clients of Ticketing, unchanged, against our daemon.")
    ap.add_argument("--server", help="the daemon (default: built from this tree)")
    ap.add_argument("--cache", default=os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ticketing-interop"),
                    help="where packages and builds are kept (%(default)s)")
    ap.add_argument("--only", default="", help="only checks with this in their name")
    ap.add_argument("--cluster", action="store_true", help="the cluster tests of the crates too, with kills")
    ap.add_argument("--cluster-cmd", default="scripts/cluster --interop", help="what starts a cluster (%(default)s)")
    ap.add_argument("--seconds", type=int, default=30, help="length of each soak and chaos test (%(default)s)")
    a = ap.parse_args()
    tally = Tally()
    wanted = lambda name: a.only in name
    with tempfile.TemporaryDirectory() as own:
        if not a.server:
            a.server = os.path.join(own, "ticketingd")
            run(["go", "build", "-o", a.server, "./cmd/ticketingd"], cwd=os.path.dirname(HERE))
        a.server, a.cache = os.path.abspath(a.server), os.path.abspath(a.cache)
        os.makedirs(a.cache, exist_ok=True)
        packages = Packages(a.cache)
        asyncio.run(all_checks(wanted, a.server, packages, tally))
        shipped.single(a, wanted, packages, tally)
        if a.cluster:
            shipped.clusters(a, wanted, packages, tally)
    sys.exit(tally.end())


main()
