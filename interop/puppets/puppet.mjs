// Does with the published Node client what stage.py tells it; the words are described there.
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const { TicketBroker, TicketError } = await import(pathToFileURL(process.argv[2]).href)
const brokers = new Map(), held = new Map()

async function obey(number, verb, ...rest) {
  if (verb === 'open') {
    const [name, addrs, token, ca] = rest
    brokers.set(name, new TicketBroker({ addrs: addrs.split(','), token: token === '-' ? '' : token, tls: ca === '-' ? 'off' : { ca } }))
  }
  if (verb === 'open' || verb === 'ready') return (await brokers.get(rest[0]).waitReady(5)) ? 'ready' : 'unready'
  if (verb === 'acquire') {
    const [name, wait, lease, key] = rest
    held.set(number, await brokers.get(name).acquire(key, Number(wait), Number(lease)))
    return `granted ${held.get(number).token}`
  }
  if (verb === 'drop') {
    held.get(rest[0]).close()
    return 'dropped'
  }
  return (await held.get(rest[0]).release()) ? 'released' : 'gone'
}

createInterface({ input: process.stdin }).on('line', async line => {
  const [number, ...words] = line.split(' ')
  let text
  try {
    text = await obey(number, ...words)
  } catch (e) {
    if (!(e instanceof TicketError)) throw e
    text = `failed ${e.kind.replaceAll('_', '')} ${e.message}`
  }
  console.log(`${number} ${text}`)
}).on('close', () => process.exit(0))
