// Node's two clients, for test_node.py: `node node_client.mjs fetch|http CALL '[URL, …]'`. Writes one
// line of JSON for each answer; events and parts of a body as they come.

import { Agent as HttpAgent, request as http } from 'node:http'
import { Agent as HttpsAgent, request as https } from 'node:https'
import { Readable } from 'node:stream'
import { gunzipSync } from 'node:zlib'

const [kind, call, ...given] = process.argv.slice(2)

const say = (status, fields, body) =>
  console.log(JSON.stringify({ status, fields, body: Buffer.from(body).toString('base64') }))

async function all(stream) {
  const parts = []
  for await (const part of stream) parts.push(part)
  return Buffer.concat(parts)
}

// fetch, with whatever it does by itself
const byFetch = {
  async ask(url, options) {
    const answer = await fetch(url, { redirect: 'manual', ...options })
    const cookies = answer.headers.getSetCookie().map(each => ['set-cookie', each])
    const others = [...answer.headers].filter(([name]) => name !== 'set-cookie')
    return [answer.status, [...others, ...cookies], await answer.arrayBuffer()]
  },
  stream: async (url, options) => (await fetch(url, options)).body,
}

// node:http, which leaves packed bodies, redirects and cookies to whoever uses it
const keep = { keepAlive: true, proxyEnv: process.env }
const agents = { 'http:': new HttpAgent(keep), 'https:': new HttpsAgent(keep) }

function send(url, { method = 'GET', headers = {}, body, signal } = {}) {
  const { protocol } = new URL(url)
  return new Promise((resolve, reject) => {
    const made = protocol === 'https:' ? https : http
    const asked = made(url, { method, headers, signal, agent: agents[protocol] }, resolve)
    asked.on('error', reject)
    if (body instanceof Readable) body.pipe(asked)
    else asked.end(body)
  })
}

const byHttp = {
  async ask(url, options = {}) {
    const answer = await send(url, options)
    if (options.redirect === 'follow' && answer.headers.location) {
      answer.resume()
      return byHttp.ask(new URL(answer.headers.location, url), options)
    }
    const fields = []
    for (let at = 0; at < answer.rawHeaders.length; at += 2) fields.push(answer.rawHeaders.slice(at, at + 2))
    const body = await all(answer)
    return [answer.statusCode, fields, answer.headers['content-encoding'] === 'gzip' ? gunzipSync(body) : body]
  },
  stream: send,
}

const { ask, stream } = { fetch: byFetch, http: byHttp }[kind]

const calls = {
  get: async (url, headers, follow) =>
    say(...await ask(url, { headers: JSON.parse(headers), redirect: follow ? 'follow' : 'manual' })),
  head: async url => say(...await ask(url, { method: 'HEAD' })),
  post: async (url, body) =>
    say(...await ask(url, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body })),
  put: async url => say(...await ask(url, { method: 'PUT', body: await all(process.stdin) })),
  upload: async url => {
    const body = kind === 'fetch' ? Readable.toWeb(process.stdin) : process.stdin
    say(...await ask(url, { method: 'PUT', body, duplex: 'half' }))
  },
  session: async (...urls) => {
    const jar = new Map()
    for (const url of urls) {
      const cookie = [...jar].map(pair => pair.join('=')).join('; ')
      const answer = await ask(url, { headers: cookie ? { cookie } : {} })
      for (const [name, value] of answer[1]) {
        if (name.toLowerCase() === 'set-cookie') jar.set(...value.split(';')[0].split('='))
      }
      say(...answer)
    }
  },
  stream: async url => { for await (const part of await stream(url)) process.stdout.write(part) },
  patience: async (url, milliseconds) => {
    try {
      await ask(url, { signal: AbortSignal.timeout(Number(milliseconds)) })
    } catch (error) {
      console.log(error.name)
    }
  },
  leave: async url => {
    for await (const part of await stream(url)) {
      console.log(part.length)
      break
    }
  },
}

await calls[call](...given)
// What would go on otherwise is only connections that are kept.
for (const agent of Object.values(agents)) agent.destroy()
