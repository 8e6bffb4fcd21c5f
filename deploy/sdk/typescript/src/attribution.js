// For whom the agent acts: user, session and task of the current asynchronous context, and the W3C
// headers that carry them on.
//
// Attribution only: what stands here can be recorded and denied, and never allows anything.

import { AsyncLocalStorage } from "node:async_hooks";

const KEYS = new Map([
  ["sluice.user", "user"],
  ["sluice.session", "session"],
  ["sluice.task", "task"],
]);
// W3C Baggage, section 3.3.2: what every party must be able to pass on.
const MAX_MEMBERS = 64;
const MAX_BYTES = 8192;
const TRACE = ["traceparent", "tracestate"];

const ITSELF = Object.freeze({ members: [], trace: [], headers: Object.freeze({}) });
const storage = new AsyncLocalStorage();

export function current() {
  return storage.getStore() ?? ITSELF;
}

export function acting({ user, session, task, headers = {} }, callback) {
  const outer = current();
  const arrived = new Map();
  for (const [name, value] of Object.entries(headers)) {
    // Node gives a header that was repeated as an array.
    arrived.set(name.toLowerCase(), Array.isArray(value) ? value.join(",") : (value ?? ""));
  }
  const [stated, members] = readBaggage(arrived.get("baggage") ?? "");
  const trace = TRACE.map((name) => [name, arrived.get(name)]).filter(([, value]) => isPlain(value));
  const inner = {
    user: user || stated.get("user") || outer.user,
    session: session || stated.get("session") || outer.session,
    task: task || stated.get("task") || outer.task,
    members: members.length ? members : outer.members,
    trace: trace.length ? trace : outer.trace,
  };
  inner.headers = Object.freeze(written(inner));
  return storage.run(Object.freeze(inner), callback);
}

export function propagationHeaders() {
  return { ...current().headers };
}

/** The values of our own members, decoded, and the members of others, as they are. */
function readBaggage(line) {
  const stated = new Map();
  const members = [];
  let room = MAX_BYTES;
  for (const member of line.split(",").map(trim)) {
    const at = member.indexOf("=");
    if (at < 0) {
      continue;
    }
    const name = trim(member.slice(0, at));
    const field = KEYS.get(name);
    if (field !== undefined) {
      if (stated.has(field)) {
        throw new TypeError(`the baggage states \`${name}\` twice`);
      }
      // Properties follow the value after `;`.
      stated.set(field, decoded(trim(member.slice(at + 1).split(";", 1)[0])));
    } else if (isPlain(member) && members.length < MAX_MEMBERS - KEYS.size) {
      room -= member.length + 1;
      if (room >= 0 && !name.startsWith("sluice.")) {
        members.push(member);
      }
    }
  }
  return [stated, members];
}

function written(inner) {
  const own = [...KEYS]
    .filter(([, field]) => inner[field] !== undefined)
    .map(([key, field]) => `${key}=${encoded(inner[field])}`);
  const baggage = [...own, ...inner.members].join(",");
  return { ...(baggage ? { baggage } : {}), ...Object.fromEntries(inner.trace) };
}

function encoded(value) {
  // What `encodeURIComponent` leaves as it is, `'` and `(` among them, may stand in a value.
  return encodeURIComponent(value.toWellFormed());
}

/** With broken sequences replaced, as W3C Baggage asks for. */
function decoded(text) {
  const bytes = Buffer.from(
    text.replace(/%([0-9a-f]{2})|[^]/giu, (found, digits) =>
      digits === undefined
        ? Buffer.from(found).toString("latin1")
        : String.fromCharCode(Number.parseInt(digits, 16)),
    ),
    "latin1",
  );
  return bytes.toString("utf-8");
}

function trim(text) {
  return text.replace(/^[ \t]+|[ \t]+$/g, "");
}

/** Whether it can be sent as the value of a header. */
function isPlain(value) {
  return typeof value === "string" && /^[\x20-\x7e]+$/.test(value);
}
