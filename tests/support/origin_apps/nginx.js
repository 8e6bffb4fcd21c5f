// What the nginx origin answers (njs): what answers.py does, for the paths that are no files.

function answer(request) {
  const target = request.variables.request_uri
  const path = target.split('?')[0]
  const status = /^\/status\/(\d+)$/.exec(path)
  if (status) {
    const number = Number(status[1])
    if (number === 204 || number === 304) {
      request.headersOut['X-Status'] = status[1]
      return request.return(number)
    }
    request.headersOut['Content-Type'] = 'text/plain'
    return request.return(number, `status ${number}`)
  }
  if (path === '/cookies') {
    request.headersOut['Set-Cookie'] = [0, 1, 2].map(n => `c${n}=${n}; Path=/`)
    return request.return(200, 'cookies')
  }
  if (path === '/redirect') return request.return(302, 'http://169.254.169.254/')
  const fields = request.rawHeadersIn.map(each => [each[0].toLowerCase(), each[1]])
  request.headersOut['Content-Type'] = 'application/json'
  const body = request.requestText === undefined ? '' : request.requestText
  request.return(200, JSON.stringify({ method: request.method, target: target, fields: fields.sort(), body: body }))
}

export default { answer }
