"""Keys that succeed one another: which chains of endorsements are valid."""

import base64

import pytest

from policies.ground.canonical import encode
from policies.ground.signing import Endorsement, KeyRing, Signer, endorsed, rotation_message
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote, Checkpoint

A, B, C, D = (Signer(bytes([n]) * 32) for n in range(4))
RING = KeyRing(A).rotated(B).rotated(C)
AB, BC = RING.history


def test_an_endorsement_signs_both_keys_under_a_prefix_of_its_own() -> None:
    wire = {"from": A.public, "to": B.public}
    text = encode({name: base64.b64encode(key).decode() for name, key in wire.items()})
    assert rotation_message(A.public, B.public) == b"sluice/key-rotation/v1\0" + text
    assert AB.signature == A.sign(b"sluice/key-rotation/v1\0" + text)
    assert Endorsement.from_wire(AB.to_wire()) == AB
    assert sorted(AB.to_wire()) == ["from", "signature", "to"]


def test_a_chain_leads_from_every_key_in_it_to_the_last() -> None:
    assert RING.signer is C
    assert [endorsed(key.public, RING.history) for key in (A, B, C)] == [C.public] * 3
    assert endorsed(A.public, [AB]) == B.public


def test_a_chain_leads_nowhere_from_a_key_outside_of_it() -> None:
    assert endorsed(D.public, RING.history) == D.public
    assert endorsed(D.public, []) == D.public


@pytest.mark.parametrize(
    "chain",
    [
        [AB, AB],
        [AB, Endorsement.by(D, C.public)],
        [Endorsement(A.public, B.public, bytes(64)), BC],
        [Endorsement(A.public, D.public, AB.signature)],
        [AB, Endorsement(B.public, C.public, A.sign(rotation_message(B.public, C.public)))],
        [AB, Endorsement(B.public, C.public, B.sign(rotation_message(A.public, C.public)))],
        [AB, Endorsement(B.public, C.public, b"")],
    ],
    ids=["twice", "by another", "no signature", "of another", "by the first", "swapped", "empty"],
)
def test_an_invalid_chain_leads_nowhere(chain: list[Endorsement]) -> None:
    assert endorsed(A.public, chain) is None


def test_a_ring_refuses_a_history_that_does_not_lead_to_its_key() -> None:
    with pytest.raises(ValueError, match="do not lead"):
        KeyRing(D, RING.history)
    with pytest.raises(ValueError, match="do not lead"):
        KeyRing(B, RING.history)


def test_a_holder_of_an_older_key_trusts_only_what_it_leads_to() -> None:
    old = KeyRing(A)
    assert old.trusted() == (A.public,)
    assert old.trusted(RING.history) == (A.public, B.public, C.public)
    assert old.trusted([BC]) == (A.public,)
    assert old.trusted([Endorsement(A.public, D.public, AB.signature)]) == (A.public,)
    assert RING.trusted(RING.history) == (A.public, B.public, C.public)


def test_a_note_is_read_that_any_key_of_the_ring_signed() -> None:
    at = Checkpoint("log", 7, bytes(32))
    for signer in (A, B, C):
        assert checkpoint.read(checkpoint.sign(at, signer), "log", RING.trusted()) == at
    with pytest.raises(BadNote):
        checkpoint.read(checkpoint.sign(at, D), "log", RING.trusted())
    with pytest.raises(BadNote):
        checkpoint.read(checkpoint.sign(at, C), "log", ())


def test_no_ring_shows_a_seed() -> None:
    for signer in (A, B, C):
        assert repr(signer.seed()) not in repr(RING)
        assert signer.seed().hex() not in repr(RING)
