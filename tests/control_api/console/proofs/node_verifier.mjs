// Runs the console's verification in Node: cases as JSON on standard input, `[name, arguments]`
// each, and on standard output a verdict for each. An error that is not a refusal ends the process.
import { readFileSync } from "node:fs";

const [folder] = process.argv.slice(2);
const load = (name) => import(`${folder}/${name}`);
const { Refused, b64, bytesOf, sha256, unb64 } = await load("encoding.js");
const { endorsed, parseKey, verifyCheckpoint } = await load("notes.js");
const { leafHash, verifyConsistency, verifyInclusion } = await load("tree.js");
const { opens, parseProof, readEntry, timeOf } = await load("entries.js");
const { Unconfirmed, checkGrowth, checkIncarnation, numberOf } = await load("history.js");

const raw = (text) => new Uint8Array(Buffer.from(text, "base64"));

async function checkpoint(note, origin, keys, witnesses) {
  const known = await Promise.all(witnesses.map(parseKey));
  const found = await verifyCheckpoint(note, keys.map(raw), known);
  if (found.origin !== origin) throw new Refused("another log");
  return {
    size: String(found.size),
    root: b64(found.root),
    witnesses: found.witnesses.map(({ name, time }) => [name, String(time)]),
  };
}

// What becomes of a log that is known, and where the reader is told why not.
function growth(known, { size, root }, answer) {
  const ask = async () => {
    if (answer.message) throw Object.assign(new Error(answer.message), { status: answer.status });
    return answer;
  };
  return judged(() => checkGrowth(known, { size: BigInt(size), root: raw(root) }, "next", ask));
}

function accepted(known, { size, root, origin }, log, key, text) {
  const given = { log, trusted: [raw(key)], text, next: "next" };
  return judged(() => checkIncarnation(known, { size: BigInt(size), root: raw(root), origin }, given));
}

async function judged(check) {
  try {
    return { told: await check() };
  } catch (error) {
    const { message, title, next, smaller } = error;
    if (error instanceof Unconfirmed) return { unconfirmed: message, title, next };
    if (error instanceof Refused) return { refused: message, smaller };
    return { failed: message };
  }
}

const verdicts = {
  checkpoint,
  inclusion: async (leaf, index, size, path, root) =>
    (await verifyInclusion(raw(leaf), BigInt(index), BigInt(size), path.map(raw), raw(root))).ok,
  consistency: (oldSize, oldRoot, newSize, newRoot, path) =>
    verifyConsistency(BigInt(oldSize), raw(oldRoot), BigInt(newSize), raw(newRoot), path.map(raw)),
  key: async (text) => {
    const { name, type, key } = await parseKey(text);
    return [name, type, b64(key)];
  },
  entry: (bytes) => Boolean(readEntry(raw(bytes))),
  time: (bytes) => timeOf(readEntry(raw(bytes))),
  opening: (commitments, path, opening) => opens(commitments, path, opening),
  endorsed: async (pinned, chain) => (await endorsed(raw(pinned), chain)).map(b64),
  proof: async (text, origin, keys) => {
    const proof = parseProof(text);
    readEntry(proof.entry ?? bytesOf(""));
    const signed = await checkpoint(proof.note, origin, keys, []);
    const [leaf, root] = [await leafHash(proof.entry), unb64(signed.root)];
    return (await verifyInclusion(leaf, proof.index, BigInt(signed.size), proof.path, root)).ok;
  },
  growth,
  accepted,
  incarnation: (origin, log) => numberOf(origin, log),
  sha256: async (text) => b64(await sha256(raw(text))),
};

const told = [];
for (const [name, ...given] of JSON.parse(readFileSync(0, "utf8"))) {
  try {
    told.push(await verdicts[name](...given));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    told.push(false);
  }
}
process.stdout.write(JSON.stringify(told));
