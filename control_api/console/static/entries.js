// The text form of an inclusion proof (C2SP tlog-proof), the entry that it carries, and the
// commitments by which an entry holds what may be erased (policies/trail/commitment.py).
import { Refused, b64, bytesOf, decode, encode, join, unb64 } from "./encoding.js";

const FIRST = "c2sp.org/tlog-proof@v1";
const MAX_EXTRA = 128 * 1024;
const MAX_HASHES = 63;
const MAX_ENTRY = 64 * 1024;

/** `{entry, index, path, note}` of a proof's text; only its one spelling is read. */
export function parseProof(text) {
  const apart = text.indexOf("\n\n");
  const [first, ...lines] = text.slice(0, Math.max(apart, 0)).split("\n");
  const note = text.slice(apart + 2);
  if (first !== FIRST || apart < 0 || !note) throw new Refused("this is not a proof of inclusion");
  const extra = lines[0]?.startsWith("extra ") ? unb64(lines.shift().slice(6)) : null;
  const index = /^index (0|[1-9][0-9]{0,18})$/.exec(lines.shift() ?? "")?.[1];
  if (index === undefined || BigInt(index) >= 2n ** 63n - 1n) {
    throw new Refused("the proof does not say which entry it is about");
  }
  const path = lines.map(unb64);
  if (path.length > MAX_HASHES || path.some((hash) => hash.length !== 32)) {
    throw new Refused("the proof's path is not of up to 63 hashes of 32 bytes");
  }
  if (extra !== null && extra.length > MAX_EXTRA) throw new Refused("the proof is too long");
  return { entry: extra, index: BigInt(index), path, note };
}

const MEMBERS = "cm eid kind log masked prev pub seq ts v";
const TYPES = { eid: "string", kind: "string", ts: "string", pub: "object", cm: "object" };
const SOURCE = { id: "string", inst: "string", n: "number", prev: "string", t: "string" };
const MARKS = ["agent_foreign", "time_doubtful"];
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;

const typeOf = (value) =>
  value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
const names = (value) => Object.keys(value).sort().join(" ");

function isTime(text) {
  if (!TIME.test(text) || text.startsWith("0000")) return false;
  const second = new Date(`${text.slice(0, 19)}Z`);
  return !isNaN(second) && second.toISOString().startsWith(text.slice(0, 19));
}

/** The entry in these bytes, checked by itself: its encoding, its members and their types. */
export function readEntry(bytes) {
  if (bytes.length > MAX_ENTRY) throw new Refused(`the entry has ${bytes.length} bytes: too many`);
  const entry = decode(bytes);
  if (typeOf(entry) !== "object") throw new Refused("the bytes are not an entry");
  const sourced = "src" in entry;
  const marked = sourced && "marks" in entry;
  const members = marked ? MEMBERS.replace("masked", "marks masked") : MEMBERS;
  const expected = sourced ? members.replace("seq", "seq src") : members;
  if (names(entry) !== expected) throw new Refused("the bytes have other members than an entry");
  const wrong = (of, types) => Object.keys(types).find((name) => typeOf(of[name]) !== types[name]);
  const fault = wrong(entry, TYPES) ?? (Array.isArray(entry.masked) ? null : "masked");
  if (fault) throw new Refused(`\`${fault}\` of the entry has the wrong type`);
  if (!isTime(entry.ts)) throw new Refused("the entry's time can't be read");
  if (sourced) {
    const src = entry.src;
    if (typeOf(src) !== "object" || names(src) !== names(SOURCE) || wrong(src, SOURCE)) {
      throw new Refused("`src` has other members than id, inst, n, prev, t");
    }
  }
  if (marked && !areMarks(entry.marks)) throw new Refused("the entry's marks can't be read");
  return entry;
}

/** Whether this is an ascending list of what the control API notes about a record. */
function areMarks(marks) {
  if (!Array.isArray(marks) || !marks.length) return false;
  return marks.every((mark, at) => MARKS.includes(mark) && (at === 0 || marks[at - 1] < mark));
}

/** The time at which a decision is listed: its sidecar's, unless that was too far from the
 * record's arrival. */
export function timeOf(entry) {
  return entry.src && !entry.marks?.includes("time_doubtful") ? entry.src.t : entry.ts;
}

const length = (bytes) => {
  const four = new Uint8Array(4);
  new DataView(four.buffer).setUint32(0, bytes.length);
  return four;
};

/** HMAC-SHA256. WebCrypto takes no empty key, and a salt always has 32 bytes. */
async function hmac(salt, message) {
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", salt, algorithm, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", key, message));
}

/** Whether `[salt, value]` is what stands behind the entry's commitment of this path. */
export async function opens(commitments, path, opening) {
  const isPair = Array.isArray(opening) && opening.length === 2;
  if (!isPair || opening.some((each) => typeof each !== "string")) return false;
  if (!Object.hasOwn(commitments, path)) return false;
  try {
    const salt = unb64(opening[0]);
    if (salt.length !== 32) return false;
    const [name, value] = [bytesOf(path), bytesOf(encode(opening[1]))];
    const label = bytesOf("audit/field/v1\0");
    const committed = await hmac(salt, join(label, length(name), name, length(value), value));
    return b64(committed) === commitments[path];
  } catch (error) {
    if (error instanceof Refused) return false;
    throw error;
  }
}
