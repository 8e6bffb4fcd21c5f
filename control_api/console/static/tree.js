// The Merkle tree of RFC 9162: inclusion (2.1.3.2) and consistency (2.1.4.2). Knows hashes and
// places; doesn't know what signed a root. Sizes are BigInt, since a log may outgrow 2^53.
import { join, same, sha256 } from "./encoding.js";

const HASH = 32;
const MAX_SIZE = 2n ** 63n - 1n;

// The first byte tells a leaf from a node: no node can be passed off as an entry.
export const leafHash = (entry) => sha256(join(0, entry));
export const nodeHash = (left, right) => sha256(join(1, left, right));

const hashes = (...given) => given.every((each) => each.length === HASH);

/**
 * Whether `path` proves that leaf number `index` of the tree of `size` leaves and with this root is
 * `leaf`. `steps` has one `{left, right, parent}` for each hash of the path, to be looked at.
 */
export async function verifyInclusion(leaf, index, size, path, root) {
  const steps = [];
  const wrong = (why) => ({ ok: false, why, steps });
  if (!(0n <= index && index < size && size <= MAX_SIZE)) {
    return wrong(`a tree of ${size} entries has no entry ${index}`);
  }
  if (!hashes(leaf, ...path)) return wrong("a hash does not have 32 bytes");
  let [place, last, hash] = [index, size - 1n, leaf];
  for (const each of path) {
    if (!last) return wrong("the path is longer than the tree is high");
    const isRight = (place & 1n) === 1n || place === last;
    const [left, right] = isRight ? [each, hash] : [hash, each];
    hash = await nodeHash(left, right);
    steps.push({ left, right, parent: hash });
    if (isRight) {
      // A right edge that is a lone left child has no sibling there, and so no hash.
      while (!(place & 1n) && place) [place, last] = [place >> 1n, last >> 1n];
    }
    [place, last] = [place >> 1n, last >> 1n];
  }
  if (last) return wrong("the path is shorter than the tree is high");
  return same(hash, root) ? { ok: true, steps } : wrong("the path leads to another root");
}

/** Whether `proof` proves that the tree with `oldRoot` is the beginning of that with `newRoot`. */
export async function verifyConsistency(oldSize, oldRoot, newSize, newRoot, proof) {
  if (!(0n < oldSize && oldSize <= newSize && newSize <= MAX_SIZE)) return false;
  if (!hashes(oldRoot, newRoot, ...proof)) return false;
  if (oldSize === newSize) return !proof.length && same(oldRoot, newRoot);
  // A complete old tree is itself the first node, and left out of the proof.
  const path = oldSize & (oldSize - 1n) ? [...proof] : [oldRoot, ...proof];
  if (!path.length) return false;
  let [place, last] = [oldSize - 1n, newSize - 1n];
  while (place & 1n) [place, last] = [place >> 1n, last >> 1n];
  let [former, latter] = [path[0], path[0]];
  for (const each of path.slice(1)) {
    if (!last) return false; // longer than the path
    if (place & 1n || place === last) {
      [former, latter] = [await nodeHash(each, former), await nodeHash(each, latter)];
      while (!(place & 1n) && place) [place, last] = [place >> 1n, last >> 1n];
    } else {
      // What lies to the right of the old tree is only in the new one.
      latter = await nodeHash(latter, each);
    }
    [place, last] = [place >> 1n, last >> 1n];
  }
  return !last && same(former, oldRoot) && same(latter, newRoot);
}
