// Preloaded into a Node server that would listen everywhere: `node -r loopback.cjs …`.

const net = require('node:net'); const listen = net.Server.prototype.listen
net.Server.prototype.listen = function (port, ...rest) { return listen.call(this, Number(port), '127.0.0.1', ...rest) }
