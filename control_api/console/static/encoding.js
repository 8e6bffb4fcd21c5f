// Bytes, base64, SHA-256, and the one encoding of everything that the log hashes
// (policies/ground/canonical.py). Whatever has a second spelling is refused, as there.

/** What was checked does not hold, or can't be read. The message says what, with its values. */
export class Refused extends Error {}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export const bytesOf = (text) => new TextEncoder().encode(text);

/** The text of UTF-8 bytes. */
export function textOf(bytes) {
  try {
    return utf8.decode(bytes);
  } catch {
    throw new Refused("the bytes are not UTF-8");
  }
}

/** Several arrays of bytes as one; a number stands for one byte. */
export function join(...parts) {
  const arrays = parts.map((part) => (typeof part === "number" ? Uint8Array.of(part) : part));
  const whole = new Uint8Array(arrays.reduce((size, each) => size + each.length, 0));
  let at = 0;
  for (const each of arrays) {
    whole.set(each, at);
    at += each.length;
  }
  return whole;
}

export const same = (one, other) =>
  one.length === other.length && one.every((byte, at) => byte === other[at]);

export const hex = (bytes) =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

export function b64(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

export function unb64(text) {
  let raw;
  try {
    raw = atob(text);
  } catch {
    throw new Refused(`\`${text.slice(0, 60)}\` is not base64`);
  }
  const bytes = Uint8Array.from(raw, (character) => character.charCodeAt(0));
  // `atob` passes over white space and missing padding; this comparison does not.
  if (b64(bytes) !== text) throw new Refused(`\`${text.slice(0, 60)}\` is not canonical base64`);
  return bytes;
}

export const sha256 = async (bytes) =>
  new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));

const KEY = /^[a-z0-9_.:-]+$/;
const MAX_DEPTH = 64;

/** The canonical text of a decoded JSON value. */
export function encode(value, depth = 0) {
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "string") {
    if (!value.isWellFormed()) throw new Refused("a text has half a character");
    return JSON.stringify(value);
  }
  if (typeof value === "number") {
    if (!Number.isSafeInteger(value)) throw new Refused(`${value} is not an integer of 53 bits`);
    return String(value);
  }
  if (depth > MAX_DEPTH) throw new Refused("a value is nested too deep");
  if (Array.isArray(value)) return `[${value.map((each) => encode(each, depth + 1)).join()}]`;
  const members = Object.keys(value).sort().map((key) => {
    if (!KEY.test(key)) throw new Refused("a member's name is outside the log's encoding");
    return `"${key}":${encode(value[key], depth + 1)}`;
  });
  return `{${members.join()}}`;
}

/** The value in canonical bytes. Any other spelling is refused: two readers might differ on it. */
export function decode(bytes) {
  const text = textOf(bytes);
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Refused("the bytes are not JSON");
  }
  if (encode(value) !== text) throw new Refused("the bytes are not in the canonical encoding");
  return value;
}
