// What became of the log since this browser last verified it: it only grew, retention purged what
// would prove that, or an operator let it go on as a new incarnation (policies/trail/checkpoint.py).
import { Refused, b64, hex, unb64 } from "./encoding.js";
import { parseProof, readEntry } from "./entries.js";
import { verifyCheckpoint } from "./notes.js";
import { leafHash, verifyConsistency, verifyInclusion } from "./tree.js";

/** What this browser can't decide: the reader confirms it, and it then remembers `next`. */
export class Unconfirmed extends Error {
  constructor(title, message, next) {
    super(message);
    Object.assign(this, { title, next });
  }
}

/** The number of the incarnation that an origin names, 0 for the log's first; null if the origin is
 *  not of this log. */
export function numberOf(origin, log) {
  if (origin === log) return 0;
  const digits = origin.startsWith(`${log}#`) ? origin.slice(log.length + 1) : "";
  return /^[1-9][0-9]{0,8}$/.test(digits) ? Number(digits) : null;
}

/**
 * That the log of the checkpoint `found` begins with the one that is `known`: a sentence, or null if
 * it did not grow. `grown(from, to)` fetches the proof.
 */
export async function checkGrowth(known, found, next, grown) {
  const [old, now] = [BigInt(known.size), found.size];
  if (old > now) {
    const message = `this browser has verified ${old} entries, and the newest checkpoint has ${now}: the log was put back`;
    throw Object.assign(new Refused(message), { smaller: true });
  }
  if (old === now) {
    if (known.root === b64(found.root)) return null;
    throw new Refused(`this browser has verified another root for the log's first ${now} entries: the log was rewritten`);
  }
  let growth;
  try {
    growth = await grown(old, now);
  } catch (error) {
    if (error.status !== 409 || !/purged/.test(error.message)) throw error;
    throw new Unconfirmed(
      "Verified, but for the log's growth",
      `Whether the log still begins with the ${old} entries that this browser verified before can't be checked any more: by the service's word, ${error.message}. The page "Audit" shows when and why that was done. If that is right, go on from the checkpoint of ${now} entries with the root ${hex(found.root)}.`,
      next,
    );
  }
  const proof = growth.hashes.map(unb64);
  if (!(await verifyConsistency(old, unb64(known.root), now, found.root, proof))) {
    throw new Refused(`the log of ${now} entries does not begin with the ${old} entries that this browser has verified before: it was rewritten`);
  }
  return `The log's first ${old} entries, which this browser verified before, are unchanged.`;
}

/**
 * Another incarnation than the one that this browser knows. An earlier one is refused. A later one
 * needs an entry of the log that says so, with the operator's reason and the last checkpoint before;
 * then it is the reader who decides.
 */
export async function checkIncarnation(known, found, { log, trusted, text, next }) {
  const [before, after] = [numberOf(known.origin ?? log, log), numberOf(found.origin, log)];
  if (after < before) {
    throw new Refused(`this browser knows incarnation ${before} of the log, and this is ${after}: the log was put back`);
  }
  if (!text) throw new Refused(`the log goes on as incarnation ${after}, and shows no entry that accepts it`);
  const proof = parseProof(text);
  const entry = readEntry(proof.entry);
  const at = await verifyCheckpoint(proof.note, trusted);
  const { ok, why } = await verifyInclusion(await leafHash(proof.entry), proof.index, at.size, proof.path, at.root);
  if (!ok) throw new Refused(`the entry that accepts incarnation ${after}: ${why}`);
  if (entry.kind !== "incarnation" || entry.pub.origin !== found.origin || at.origin !== found.origin || entry.log !== log) {
    throw new Refused(`the entry that accepts incarnation ${after} is about another log`);
  }
  let lost = "It cites no earlier checkpoint.";
  if (entry.pub.cited !== null) {
    const cited = await verifyCheckpoint(entry.pub.cited, trusted);
    lost = `Its last checkpoint before had ${cited.size} entries, the root ${hex(cited.root)}.`;
  }
  throw new Unconfirmed(
    "The log goes on as a new incarnation",
    `It was put back or damaged: this browser had verified ${known.size} entries, which it can't prove to be a part of it. Its operator accepted that: entry ${entry.seq} of ${entry.ts}, signed by the log's key, says: "${entry.pub.reason}". ${lost} Ask the operator by another way whether that is right, and whether the command accept-incarnation printed ${found.origin}. If so, go on from the checkpoint of ${found.size} entries with the root ${hex(found.root)}.`,
    next,
  );
}
