// A Node origin: `node node.mjs PORT`. Answers what answers.py does, and beyond it what only a
// server can that writes its answers by the byte. One line a request: X-Case, method and target.

import { createServer } from 'node:http'
import { gzipSync } from 'node:zlib'

const large = '0123456789abcdef'.repeat(20000)
const text = { 'Content-Type': 'text/plain' }

// By the byte, for what no library sends. Each ends its connection.
const raw = {
  '/raw/length-and-chunked':
    'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n',
  '/raw/two-lengths': 'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde',
  '/raw/nul': 'HTTP/1.1 200 OK\r\nX-A: a\0b\r\nContent-Length: 2\r\n\r\nok',
  '/raw/not-http': 'nonsense\r\n\r\n',
  '/raw/nothing': '',
  '/raw/short': 'HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nonly this',
  '/raw/short-chunks': 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n',
  '/raw/to-the-end': 'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end',
  '/raw/old': 'HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nof 1.0',
  '/raw/reason': 'HTTP/1.1 200 All right \xfc\r\nContent-Length: 2\r\n\r\nok',
  '/raw/no-reason': 'HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok',
  '/raw/odd-status': 'HTTP/1.1 299 Odd\r\nContent-Length: 2\r\n\r\nok',
  '/raw/latin-1': 'HTTP/1.1 200 OK\r\nX-A: \xe4\xf6\r\nContent-Length: 2\r\n\r\nok',
  '/raw/same-twice': 'HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\nX-A: 1\r\nContent-Length: 2\r\n\r\nok',
  '/raw/trailers':
    'HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n',
  '/raw/extensions':
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\n\r\n',
  '/raw/early': 'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok',
  '/raw/processing': 'HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok',
  '/raw/hop':
    'HTTP/1.1 200 OK\r\nConnection: X-Private, close\r\nX-Private: 1\r\nKeep-Alive: timeout=5\r\n' +
    'Proxy-Authenticate: Basic\r\nX-Public: 1\r\nContent-Length: 2\r\n\r\nok',
  '/raw/upgrade': 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n',
}

function answer(request, body) {
  const path = request.url.split('?')[0]
  const status = /^\/status\/(\d+)$/.exec(path)
  if (status) {
    const number = Number(status[1])
    if (number === 204 || number === 304) return [number, { 'X-Status': status[1] }, []]
    return [number, text, [`status ${number}`]]
  }
  switch (path) {
    case '/chunked': return [200, text, ['one ', 'two ', 'three'], false]
    case '/cookies':
      return [200, { ...text, 'Set-Cookie': [0, 1, 2].map(n => `c${n}=${n}; Path=/`), 'X-Same': '1' }, ['cookies']]
    case '/gzip':
      return [200, { ...text, 'Content-Encoding': 'gzip' }, [gzipSync('packed '.repeat(100))]]
    case '/large': return [200, text, [large]]
    case '/large-chunked': return [200, text, Array(4).fill(large.slice(0, 70000)), false]
    case '/etag': {
      const tag = { ETag: '"1"', 'Cache-Control': 'max-age=60' }
      if (request.headers['if-none-match'] === '"1"') return [304, tag, []]
      return [200, { ...text, ...tag }, ['tagged']]
    }
    case '/ours':
      return [200, { ...text, 'X-Sluice-Decision': 'ALLOW', 'X-Sluice-Event-Id': 'evt_forged' }, ['claims to be us']]
    case '/empty': return [200, text, ['']]
    case '/redirect': return [302, { Location: 'http://169.254.169.254/' }, ['']]
  }
  const fields = []
  for (let at = 0; at < request.rawHeaders.length; at += 2) {
    fields.push([request.rawHeaders[at].toLowerCase(), request.rawHeaders[at + 1]])
  }
  const seen = { method: request.method, target: request.url, fields: fields.sort(), body: body.toString('latin1') }
  return [200, { 'Content-Type': 'application/json' }, [JSON.stringify(seen)]]
}

const server = createServer({ keepAliveTimeout: 120000 }, (request, response) => {
  const parts = []
  request.on('data', part => parts.push(part))
  request.on('end', () => {
    console.log(request.headers['x-case'] ?? '-', request.method, request.url)
    const bytes = raw[request.url.split('?')[0]]
    if (bytes !== undefined) return request.socket.end(Buffer.from(bytes, 'latin1'))
    const [status, fields, body, length = true] = answer(request, Buffer.concat(parts))
    const whole = { ...fields }
    if (length && status !== 204 && status !== 304) {
      whole['Content-Length'] = body.reduce((sum, part) => sum + Buffer.byteLength(part), 0)
    }
    response.writeHead(status, whole)
    if (request.method !== 'HEAD') for (const part of body) response.write(part)
    response.end()
  })
})
server.listen(Number(process.argv[2]), '127.0.0.1', 1024)
