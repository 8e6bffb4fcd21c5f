"""The golden proofs of `tests/vectors`, each checked again without the code under test: RFC 9162
word for word, and the text forms of C2SP by the standard library."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from policies.ground.signing import Signer
from policies.trail import checkpoint
from policies.trail.merkle_tree import leaf_hash
from policies.trail.proofs import signed_note, tree_proofs
from policies.trail.proofs.signed_note import VerifierKey
from policies.trail.proofs.tree_proofs import TlogProof
from tests.policies.trail.proofs.naive_proofs import naive_consistency, naive_path, naive_root

VECTORS = Path(__file__).parents[3] / "vectors"


def vector(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_bytes())


def hashes(each: Any) -> list[bytes]:
    return [bytes.fromhex(text) for text in each["hashes"]]


LEAVES = [hashlib.sha256(b"\0entry %d" % n).digest() for n in range(257)]


def test_inclusion_proofs_equal_the_golden_ones() -> None:
    for each in vector("proofs")["inclusion"]:
        leaves, index = LEAVES[: each["size"]], each["index"]
        assert hashes(each) == naive_path(index, leaves)
        root = naive_root(leaves)
        assert tree_proofs.proves_inclusion(leaves[index], index, each["size"], hashes(each), root)


def test_consistency_proofs_equal_the_golden_ones() -> None:
    for each in vector("proofs")["consistency"]:
        old, new = each["from"], each["to"]
        assert hashes(each) == naive_consistency(old, LEAVES[:new])
        roots = naive_root(LEAVES[:old]), naive_root(LEAVES[:new])
        assert tree_proofs.proves_consistency(old, roots[0], new, roots[1], hashes(each))


def test_the_note_with_two_signatures_equals_the_golden_one() -> None:
    stored = vector("cosigned")
    text, _, lines = stored["note"].rpartition("\n\n")
    body = f"{text}\n".encode()
    signed_at = stored["signed_at"]
    message = b"cosignature/v1\ntime %d\n%b" % (signed_at, body)
    assert stored["cosigned_message"].encode() == message
    expected = ""
    for seed, key, kind in zip(
        (stored["log_seed"], stored["witness_seed"]), stored["verifier_keys"], (1, 4), strict=True
    ):
        private = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed))
        public = bytes([kind]) + private.public_key().public_bytes_raw()
        name = key.partition("+")[0]
        id_ = hashlib.sha256(name.encode() + b"\n" + public).digest()[:4]
        assert key == f"{name}+{id_.hex()}+{base64.b64encode(public).decode()}"
        time = b"" if kind == 1 else signed_at.to_bytes(8, "big")
        raw = id_ + time + private.sign(body if kind == 1 else message)
        expected += f"— {name} {base64.b64encode(raw).decode()}\n"
    assert lines == expected
    keys = [VerifierKey.parse(key) for key in stored["verifier_keys"]]
    note = signed_note.parse(stored["note"])
    assert signed_note.verified(note, keys) == [note.signatures[0]]
    assert signed_note.verified_cosignatures(note, keys) == [(keys[1], signed_at)]


def test_the_text_of_a_proof_equals_the_golden_one() -> None:
    stored = vector("cosigned")
    entries = [each["utf8"].encode() for each in vector("log")["entries"]]
    leaves = [hashlib.sha256(b"\0" + each).digest() for each in entries]
    path = [base64.b64encode(each).decode() for each in naive_path(3, leaves)]
    extra = base64.b64encode(entries[3]).decode()
    head = f"c2sp.org/tlog-proof@v1\nextra {extra}\nindex 3\n"
    assert stored["proof"] == head + "".join(f"{each}\n" for each in path) + "\n" + stored["note"]
    proof = TlogProof.parse(stored["proof"])
    assert proof.text() == stored["proof"]
    public = Signer(bytes.fromhex(stored["log_seed"])).public
    at = checkpoint.read(proof.note, "default", (public,))
    assert proof.extra == entries[3]
    assert proof.proves(leaf_hash(entries[3]), at.size, at.root)
