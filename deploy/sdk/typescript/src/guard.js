// `Guard`: asks Sluice, and puts what reads data behind the answer.

import { readFileSync } from "node:fs";
import { inspect } from "node:util";

import { current } from "./attribution.js";
import { Denied, NotAllowed, Unavailable, readDecision } from "./decisions.js";
import { Connections } from "./exchange.js";

const AsyncGeneratorFunction = Object.getPrototypeOf(async function* () {}).constructor;
const GeneratorFunction = Object.getPrototypeOf(function* () {}).constructor;

export class Guard {
  #agentId;
  #connections;
  #headers;
  #role;
  #url;

  constructor(url, key, agentId, role, { timeout = 2, ca } = {}) {
    if (typeof key !== "string" || !/^[\x21-\x7e]+$/.test(key)) {
      throw new TypeError("the key is empty, or has characters that no key has");
    }
    for (const given of [agentId, role]) {
      if (typeof given !== "string" || given === "") {
        throw new TypeError("the agent's id and its role are texts");
      }
    }
    if (!(Number.isFinite(timeout) && timeout > 0)) {
      throw new TypeError("the timeout is a number of seconds, above 0");
    }
    const address = readUrl(url);
    this.#url = address.href;
    this.#agentId = agentId;
    this.#role = role;
    this.#connections = new Connections(address, timeout, ca);
    this.#headers = {
      "X-API-Key": key,
      "Content-Type": "application/json",
      Accept: "application/json",
    };
  }

  static fromEnviron(environ) {
    const read = (name) => {
      if (environ[name] === undefined) {
        throw new TypeError(`\`${name}\` is not set`);
      }
      return environ[name].trim();
    };
    const file = environ.SLUICE_GUARD_KEY_FILE;
    const key = file ? readFileSync(file, "ascii").trim() : read("SLUICE_GUARD_KEY");
    return new Guard(
      read("SLUICE_GUARD_URL"), key, read("SLUICE_GUARD_AGENT_ID"), read("SLUICE_GUARD_ROLE"),
    );
  }

  async check(sourceId, sensitivity = "critical", { query, sourceType = "sdk" } = {}) {
    for (const given of [sourceId, sensitivity]) {
      if (typeof given !== "string") {
        throw new TypeError(`a source and its level are texts, not \`${typeof given}\``);
      }
    }
    const who = current();
    const content = Buffer.from(
      // A member that is undefined is left out.
      JSON.stringify({
        agent_id: this.#agentId,
        agent_role: this.#role,
        // Without a user the agent acts for itself, as in the sidecar's proxy.
        user_id: who.user ?? this.#agentId,
        source_id: sourceId,
        sensitivity_level: sensitivity,
        source_type: sourceType,
        session_id: who.session,
        task_type: who.task,
        query,
      }),
    );
    const headers = { ...this.#headers, ...who.headers, "Content-Length": content.length };
    const answer = await this.#connections.post(headers, content);
    const decision = typeof answer === "string" ? answer : readDecision(answer);
    if (typeof decision === "string") {
      throw new Unavailable(sourceId, decision);
    }
    if (decision.decision !== "ALLOW") {
      throw new Denied(sourceId, decision);
    }
    return decision;
  }

  source(source, sensitivity = "critical") {
    return (body) => this.#behind(body, source, sensitivity, false);
  }

  tool(body, { source, sensitivity = "critical", answer = false } = {}) {
    const named = source ?? `tool://${body.name || "unnamed"}`;
    return this.#behind(body, named, sensitivity, answer);
  }

  close() {
    this.#connections.close();
  }

  toString() {
    return `<Guard ${this.#url} agent=${this.#agentId} role=${this.#role}>`;
  }

  [inspect.custom]() {
    return this.toString();
  }

  /** `body`, of the same name, behind a decision on each call. */
  #behind(body, source, sensitivity, answers) {
    // Called without `new`, a class would throw behind the decision; a generator would give items
    // that no one awaits.
    if (typeof body !== "function" || /^class\b/.test(Function.prototype.toString.call(body))) {
      throw new TypeError("a guard takes functions: put it next to the function");
    }
    if (body instanceof GeneratorFunction) {
      throw new TypeError("a guard takes async generators, not generators: its answer is awaited");
    }
    /** The refusal that is to be the call's answer; undefined on an ALLOW. Throws any other. */
    const refused = async (called, values) => {
      try {
        const id = typeof source === "function" ? source.apply(called, values) : source;
        await this.check(id, sensitivity);
        return undefined;
      } catch (refusal) {
        if (answers && refusal instanceof NotAllowed) {
          return refusal.message;
        }
        throw refusal;
      }
    };
    const guarded =
      body instanceof AsyncGeneratorFunction
        ? async function* (...values) {
            const refusal = await refused(this, values);
            if (refusal === undefined) {
              return yield* body.apply(this, values);
            }
            yield refusal;
            return undefined;
          }
        : async function (...values) {
            const refusal = await refused(this, values);
            return refusal === undefined ? body.apply(this, values) : refusal;
          };
    Object.defineProperty(guarded, "name", { value: body.name, configurable: true });
    Object.defineProperty(guarded, "length", { value: body.length, configurable: true });
    return guarded;
  }
}

/** The service's address. Throws without the text: it could hold a key. */
function readUrl(text) {
  let url;
  try {
    url = new URL(text);
  } catch {
    throw new TypeError("the URL can't be read");
  }
  if ((url.protocol !== "http:" && url.protocol !== "https:") || !url.hostname) {
    throw new TypeError("the URL must begin with http:// or https:// and a host");
  }
  if (url.username || url.password || url.search || url.hash) {
    throw new TypeError("the URL may have no user, query or fragment");
  }
  return url;
}
