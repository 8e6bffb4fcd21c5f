// Signed notes (C2SP signed-note), checkpoints (tlog-checkpoint), cosignatures of witnesses
// (tlog-cosignature), and keys that succeed one another. policies/trail/proofs has the same rules.
import { Refused, b64, bytesOf, encode, hex, join, same, sha256, unb64 } from "./encoding.js";

const ED25519 = 1;
const COSIGNATURE = 4;
const MAX_NOTE = 256 * 1024;
const MAX_SIGNATURES = 100;
const MAX_SIZE = 2n ** 63n - 1n;
// Not `\s`, which is another set of characters than the format's Unicode spaces.
const NO_NAME = /[+\0- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;
const isName = (name) => name !== "" && !NO_NAME.test(name);

/** Whether `signature` over `message` was made with the private key of `key` (32 bytes). */
async function signed(key, signature, message) {
  const imported = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
  return crypto.subtle.verify("Ed25519", imported, signature, message);
}

/** Whether this browser can verify at all: only HTTPS and localhost have WebCrypto. */
export async function canVerify() {
  if (!globalThis.crypto?.subtle) return "insecure";
  try {
    await signed(new Uint8Array(32), new Uint8Array(64), new Uint8Array(1));
    return "yes";
  } catch {
    return "old";
  }
}

/** The 4 bytes that stand before each signature of a key. */
const keyId = async (name, type, key) =>
  (await sha256(join(bytesOf(`${name}\n`), type, key))).slice(0, 4);

/** A verifier key as text: `<name>+<key id>+<base64>`. */
export async function keyText(name, key, type = ED25519) {
  return `${name}+${hex(await keyId(name, type, key))}+${b64(join(type, key))}`;
}

/** The inverse: `{name, type, key}`. Its key id is computed, and compared with what the text says. */
export async function parseKey(text) {
  const [name, , ...rest] = text.split("+");
  const raw = unb64(rest.join("+"));
  const type = raw[0];
  if (raw.length !== 33 || (type !== ED25519 && type !== COSIGNATURE) || !isName(name)) {
    throw new Refused(`\`${text.slice(0, 120)}\` is not a verifier key`);
  }
  const key = raw.slice(1);
  if ((await keyText(name, key, type)) !== text) {
    throw new Refused(`\`${text.slice(0, 120)}\` has a key id that is not the key's`);
  }
  return { name, type, key };
}

/** The text of a note, and its signatures `{name, id, signature, line}`. Verifies nothing. */
export function parseNote(note) {
  const apart = note.lastIndexOf("\n\n");
  if (apart < 0 || !note.endsWith("\n") || apart + 2 >= note.length) {
    throw new Refused("the note is not a text, an empty line and signatures");
  }
  if (!note.isWellFormed() || bytesOf(note).length > MAX_NOTE || /[\0-\x09\x0b-\x1f]/.test(note)) {
    throw new Refused("the note is too long, or has a character that no note may have");
  }
  const lines = note.slice(apart + 2, -1).split("\n");
  if (lines.length > MAX_SIGNATURES) throw new Refused("the note has too many signatures");
  const signatures = lines.map((line) => {
    const [mark, name = "", ...rest] = line.split(" ");
    const raw = unb64(rest.join(" "));
    if (mark !== "—" || !isName(name) || raw.length <= 4) {
      throw new Refused("a line below the note's text is not a signature");
    }
    return { name, id: raw.slice(0, 4), signature: raw.slice(4), line };
  });
  return { text: note.slice(0, apart + 1), signatures };
}

/** What a note's text says: `{origin, size, root}`. */
function parseCheckpoint(text) {
  const [origin, size, root, end, ...more] = text.split("\n");
  if (!origin || !/^(0|[1-9][0-9]{0,18})$/.test(size) || root === undefined) {
    throw new Refused("the note is not a checkpoint");
  }
  const found = { origin, size: BigInt(size), root: unb64(root) };
  // Our logs write no extension lines.
  if (found.size > MAX_SIZE || found.root.length !== 32 || end !== "" || more.length) {
    throw new Refused("the note is not a checkpoint");
  }
  return found;
}

/** The signatures of the note by `key`, a repeated line once. */
async function by(parsed, { name, type, key }) {
  const id = await keyId(name, type, key);
  const lines = new Map(parsed.signatures.map((each) => [each.line, each]));
  return [...lines.values()].filter((each) => each.name === name && same(each.id, id));
}

/**
 * What a checkpoint's note says, and who signed it: `{origin, size, root, text, signers, witnesses}`.
 * `keys` are the log's (32 bytes each), of which one must have signed; `witnesses` are parsed
 * verifier keys, of which any may have. A wrong signature by one of these refuses the note, even if
 * another one is right.
 */
export async function verifyCheckpoint(note, keys, witnesses = []) {
  const parsed = parseNote(note);
  const found = { ...parseCheckpoint(parsed.text), text: parsed.text, signers: [], witnesses: [] };
  const text = bytesOf(parsed.text);
  for (const key of keys) {
    const lines = await by(parsed, { name: found.origin, type: ED25519, key });
    for (const { signature } of lines) {
      if (!(await signed(key, signature, text))) {
        throw new Refused(`the signature by the log's key ${b64(key)} does not fit the checkpoint`);
      }
    }
    if (lines.length) found.signers.push(key);
  }
  if (!found.signers.length) {
    const by = parsed.signatures.map((each) => each.line.split(" ").slice(1).join(" "));
    throw new Refused(`the checkpoint is not signed by a trusted key, but by: ${by.join(", ")}`);
  }
  for (const witness of witnesses) {
    if (witness.type !== COSIGNATURE) continue;
    let latest = -1n;
    for (const { signature } of await by(parsed, witness)) {
      const view = new DataView(signature.buffer, signature.byteOffset);
      const time = signature.length === 72 ? view.getBigUint64(0) : -1n;
      const message = join(bytesOf(`cosignature/v1\ntime ${time}\n`), text);
      const fits = 0n <= time && time <= MAX_SIZE;
      if (!fits || !(await signed(witness.key, signature.slice(8), message))) {
        throw new Refused(`the cosignature by \`${witness.name}\` does not fit the checkpoint`);
      }
      if (time > latest) latest = time;
    }
    if (latest >= 0n) found.witnesses.push({ name: witness.name, time: latest });
  }
  return found;
}

/**
 * The keys that `pinned` (32 bytes) leads to, itself first: each endorsed by the one before it.
 * `endorsements` are `{from, to, signature}` in base64, oldest first, as the log's keys come.
 */
export async function endorsed(pinned, endorsements) {
  const trusted = [pinned];
  for (const each of endorsements) {
    if (each.from !== b64(trusted.at(-1))) continue;
    const message = `sluice/key-rotation/v1\0${encode({ from: each.from, to: each.to })}`;
    const [next, signature] = [unb64(each.to), unb64(each.signature)];
    if (await signed(trusted.at(-1), signature, bytesOf(message))) trusted.push(next);
  }
  return trusted;
}
