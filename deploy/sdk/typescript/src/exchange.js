// Sends requests over connections that are kept, each within one deadline. Retries nothing, follows
// no redirect, and asks no proxy.
//
// `node:http` and not `fetch`: that one's connections, proxies and interceptors are shared with the
// whole process, and the key would go where they lead.

import http from "node:http";
import https from "node:https";

const MAX_BODY = 64 * 1024;
const MAX_IDLE = 64;
const NOT_HTTP = "what the sidecar answered is no HTTP response, or too large";
const BROKEN_OFF = "the connection to the sidecar broke off";

/** The connections of a guard. `timeout` is in seconds, for all of a request. */
export class Connections {
  #agent;
  #closed = false;
  #request;
  #where;
  #timeout;

  constructor(url, timeout, ca) {
    const secure = url.protocol === "https:";
    const { request, Agent } = secure ? https : http;
    this.#request = request;
    this.#agent = new (ofSilentSockets(Agent))({ keepAlive: true, maxFreeSockets: MAX_IDLE });
    this.#where = {
      protocol: url.protocol,
      // A URL has an IPv6 address in brackets, a socket without.
      hostname: url.hostname.replace(/^\[|\]$/g, ""),
      port: url.port || (secure ? 443 : 80),
      path: `${url.pathname.replace(/\/+$/, "")}/v1/context/evaluate`,
      method: "POST",
      agent: this.#agent,
      insecureHTTPParser: false,
      ...(secure ? { ca, rejectUnauthorized: true } : {}),
    };
    this.#timeout = timeout;
  }

  /** The answer `{status, headers, body}`, or why there is none, as a text. */
  async post(headers, content) {
    // What arrived on an idle connection, while the event loop was busy, would be taken for the
    // answer. In two turns of the loop Node reads it, and the agent closes the connection.
    await turn();
    await turn();
    if (this.#closed) {
      return "the guard is closed";
    }
    return new Promise((resolve) => {
      const request = this.#request({ ...this.#where, headers });
      // The first outcome counts. Without an answer the connection can't be used again.
      const end = (outcome) => {
        clearTimeout(timer);
        resolve(outcome);
        if (typeof outcome === "string") {
          request.destroy();
        }
      };
      const timer = setTimeout(
        () => end(`the sidecar did not answer within ${this.#timeout} s`),
        this.#timeout * 1000,
      );
      request.on("response", (response) => read(response, end));
      request.on("upgrade", (_, socket) => {
        socket.destroy();
        end(NOT_HTTP);
      });
      request.on("error", (error) => end(this.#problem(error)));
      request.on("close", () => end(BROKEN_OFF));
      request.end(content);
    });
  }

  /** Close the connections, those in use included. */
  close() {
    this.#closed = true;
    this.#agent.destroy();
  }

  /** In words of our own: an error's text could hold what was sent, the key included. */
  #problem(error) {
    const { code = "" } = error;
    if (["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN"].includes(code)) {
      return `no sidecar listens at ${this.#where.hostname}:${this.#where.port}`;
    }
    if (code.startsWith("HPE_")) {
      return NOT_HTTP;
    }
    if (/^(ERR_TLS|ERR_SSL|EPROTO|CERT_|DEPTH_|SELF_SIGNED|UNABLE_TO)/.test(code)) {
      return `no TLS with the sidecar: ${code}`;
    }
    return BROKEN_OFF;
  }
}

/** An agent that closes an idle connection on which anything arrives: no one asked for it. */
function ofSilentSockets(Agent) {
  return class extends Agent {
    keepSocketAlive(socket) {
      const kept = super.keepSocketAlive(socket);
      socket.on("data", destroy);
      return kept;
    }

    reuseSocket(socket, request) {
      socket.off("data", destroy);
      super.reuseSocket(socket, request);
    }
  };
}

function destroy() {
  this.destroy();
}

function turn() {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

function read(response, end) {
  const pieces = [];
  let size = 0;
  response.on("data", (piece) => {
    size += piece.length;
    if (size > MAX_BODY) {
      end(NOT_HTTP);
    } else {
      pieces.push(piece);
    }
  });
  response.on("error", () => end(BROKEN_OFF));
  response.on("end", () => {
    if (!response.complete) {
      end(BROKEN_OFF);
      return;
    }
    const headers = [];
    for (let at = 0; at < response.rawHeaders.length; at += 2) {
      headers.push([response.rawHeaders[at].toLowerCase(), response.rawHeaders[at + 1]]);
    }
    end({ status: response.statusCode, headers, body: Buffer.concat(pieces) });
  });
}
