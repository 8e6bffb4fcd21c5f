"""The text form of proofs: C2SP `tlog-proof.md` (5ba5ee830903e91240fc6f9f3a7a9293d49e69c9), and the
cases of github.com/transparency-dev/formats, proof/tlog_proof_test.go
(0b850f1a7b4a5b70deeac6535e4b8023809d21)."""

import base64
import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.signing import Signer
from policies.trail import checkpoint
from policies.trail.checkpoint import Checkpoint
from policies.trail.merkle_tree import leaf_hash
from policies.trail.proofs import tree_proofs
from policies.trail.proofs.tree_proofs import MAX_EXTRA, MAX_HASHES, MAX_TEXT, BadProof, TlogProof
from tests.policies.trail.proofs.naive_proofs import reader
from tests.policies.world import naive_root
from tests.support.properties import examples

FIRST, SECOND = (hashlib.sha256(text).digest() for text in (b"hash1", b"hash2"))
ONE, TWO = (base64.b64encode(each).decode() for each in (FIRST, SECOND))
LONG = base64.b64encode(bytes(64)).decode()
HEADER = "c2sp.org/tlog-proof@v1"
PUBLISHED = [
    (
        TlogProof(5, (FIRST, SECOND), "test checkpoint\n"),
        f"c2sp.org/tlog-proof@v1\nindex 5\n{ONE}\n{TWO}\n\ntest checkpoint\n",
    ),
    (
        TlogProof(10, (FIRST,), "checkpoint data\n", b"extra information"),
        f"{HEADER}\nextra ZXh0cmEgaW5mb3JtYXRpb24=\nindex 10\n{ONE}\n\ncheckpoint data\n",
    ),
    (TlogProof(0, (), "checkpoint\n"), "c2sp.org/tlog-proof@v1\nindex 0\n\ncheckpoint\n"),
]


@pytest.mark.parametrize(("proof", "text"), PUBLISHED)
def test_published_proofs_are_read_and_verify(proof: TlogProof, text: str) -> None:
    assert proof.text() == text
    assert TlogProof.parse(text) == proof


@pytest.mark.parametrize(
    "text",
    [
        "wrong-header\nindex 0\n\ncheckpoint\n",
        "c2sp.org/tlog-proof@v1\nextra !!notbase64!!\nindex 0\n\ncheckpoint\n",
        "c2sp.org/tlog-proof@v1\n\n\ncheckpoint\n",
        "c2sp.org/tlog-proof@v1\nindex notanumber\n\ncheckpoint\n",
        "c2sp.org/tlog-proof@v1\nindex -5\n\ncheckpoint\n",
        "c2sp.org/tlog-proof@v1\nindex 0\n!!notbase64!!\n\ncheckpoint\n",
        f"c2sp.org/tlog-proof@v1\nindex 0\n{LONG}\n\ncheckpoint\n",
        "c2sp.org/tlog-proof@v1\nindex 0\n" + "a" * 65 * 1024 + "\n",
        # Beyond those of transparency-dev:
        "",
        "c2sp.org/tlog-proof@v1",
        "c2sp.org/tlog-proof@v1\n\n",
        "c2sp.org/tlog-proof@v1\nindex 0\n",
        "c2sp.org/tlog-proof@v1\nindex 0\n\n",
        "c2sp.org/tlog-proof@v1\nindex 05\n\ncheckpoint\n",
        "c2sp.org/tlog-proof@v1\nindex +5\n\ncheckpoint\n",
        "c2sp.org/tlog-proof@v1\nindex 5 \n\ncheckpoint\n",
        "c2sp.org/tlog-proof@v1\n5\n\ncheckpoint\n",
        "c2sp.org/tlog-proof@v1\nindex 9223372036854775807\n\ncheckpoint\n",
        "c2sp.org/tlog-proof@v1\nindex " + "9" * 5000 + "\n\ncheckpoint\n",
        "c2sp.org/tlog-proof@v1\r\nindex 0\r\n\r\ncheckpoint\r\n",
        "c2sp.org/tlog-proof@v1\nindex 0\nextra AAAA\n\ncheckpoint\n",
        "c2sp.org/tlog-proof@v1\nextra AAAA\nextra AAAA\nindex 0\n\ncheckpoint\n",
        "c2sp.org/tlog-proof@v1\nextra\nindex 0\n\ncheckpoint\n",
        f"c2sp.org/tlog-proof@v1\nindex 0\n{ONE.rstrip('=')}\n\ncheckpoint\n",
        TlogProof(0, (FIRST,) * (MAX_HASHES + 1), "checkpoint\n").text(),
        TlogProof(0, (), "checkpoint\n", bytes(MAX_EXTRA + 1)).text(),
        TlogProof(0, (), "x" * MAX_TEXT).text(),
    ],
)
def test_a_text_that_is_not_a_proof_is_refused(text: str) -> None:
    with pytest.raises(BadProof):
        TlogProof.parse(text)


def test_a_proof_needs_nothing_else_but_the_key_to_be_verified() -> None:
    entries = [b'{"n":%d}' % n for n in range(11)]
    leaves = [leaf_hash(each) for each in entries]
    signer = Signer(bytes(32))
    note = checkpoint.sign(Checkpoint("log", 11, naive_root(leaves)), signer)
    hashes = tuple(tree_proofs.inclusion_proof(6, 11, reader(leaves)))
    text = TlogProof(6, hashes, note, entries[6]).text()
    # From here on as somebody who has the text and the key.
    proof = TlogProof.parse(text)
    at = checkpoint.read(proof.note, "log", (signer.public,))
    assert proof.extra is not None
    assert proof.proves(leaf_hash(proof.extra), at.size, at.root)
    assert not proof.proves(leaf_hash(b'{"n":7}'), at.size, at.root)
    assert not replace(proof, index=7).proves(leaf_hash(proof.extra), at.size, at.root)


@given(
    st.integers(0, 2**63 - 2),
    st.lists(st.binary(min_size=32, max_size=32), max_size=MAX_HASHES),
    st.text(min_size=1),
    st.none() | st.binary(max_size=300),
)
@examples(500)
def test_every_proof_is_read_back_as_it_was_written(
    index: int, hashes: list[bytes], note: str, extra: bytes | None
) -> None:
    proof = TlogProof(index, tuple(hashes), note, extra)
    assert TlogProof.parse(proof.text()) == proof


@pytest.mark.deep(stands_in="test_a_text_that_is_not_a_proof_is_refused")
@given(st.text(), st.integers(0, 200), st.integers(0, 5))
@examples(1000)
def test_no_text_makes_the_parser_fail_with_another_error(text: str, at: int, cut: int) -> None:
    whole = PUBLISHED[1][1]
    for each in (text, whole[:at] + text[:3] + whole[at + cut :]):
        try:
            parsed = TlogProof.parse(each)
        except BadProof:
            continue
        assert parsed.text() == each
