"""Does with the published Python client what stage.py tells it; the words are described there."""
import asyncio
import sys

from saro_ticketing import TicketBroker, TicketError

brokers, held = {}, {}


async def obey(number, verb, *rest):
    if verb == "open":
        name, addrs, token, ca, _ = rest
        brokers[name] = TicketBroker(addrs.split(","), token="" if token == "-" else token, tls=None if ca == "-" else ca)
    if verb in ("open", "ready"):
        return "ready" if await brokers[rest[0]].wait_ready(5) else "unready"
    if verb == "acquire":
        name, wait, lease, key = rest
        held[number] = await brokers[name].acquire(key, int(wait), int(lease))
        return "granted %d" % held[number].token
    if verb == "drop":
        held.pop(rest[0]).close()
        return "dropped"
    return "released" if await held[rest[0]].release() else "gone"


async def answer(number, *words):
    try:
        text = await obey(number, *words)
    except TicketError as e:
        text = "failed %s %s" % (e.kind.replace("_", ""), e)
    print(number, text, flush=True)


async def main():
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    tasks = set()  # a task that nobody refers to may be collected
    while line := await lines.readline():
        tasks.add(asyncio.create_task(answer(*line.decode().rstrip("\n").split(" "))))


asyncio.run(main())
