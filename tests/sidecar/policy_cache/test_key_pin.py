"""The pinned log key: what replaces it, and for how long the former key counts."""

import sqlite3

import pytest

from policies.ground.signing import KeyRing, Signer
from sidecar.policy_cache.key_pin import OVERLAP, KeyPin, NotEndorsed, advance_pin

A, B, C, D = (Signer(bytes([n]) * 32) for n in range(4))
RING = KeyRing(A).rotated(B).rotated(C)
ONE = RING.history[:1]
NOW = 1_000_000


def test_the_first_key_is_pinned() -> None:
    assert advance_pin(None, A.public, (), NOW) == KeyPin(A.public)
    # A history that leads to another key says nothing about this one.
    assert advance_pin(None, D.public, RING.history, NOW) == KeyPin(D.public)


def test_an_endorsed_key_replaces_the_pin_and_the_former_is_accepted_for_a_while() -> None:
    pin = KeyPin(A.public).advanced(B.public, ONE, NOW)
    assert pin == KeyPin(B.public, (A.public,), NOW + OVERLAP)
    assert pin.accepted(NOW) == (B.public, A.public)
    assert pin.accepted(NOW + OVERLAP) == (B.public,)


def test_two_rotations_are_followed_at_once() -> None:
    pin = KeyPin(A.public).advanced(C.public, RING.history, NOW)
    assert pin == KeyPin(C.public, (A.public, B.public), NOW + OVERLAP)


def test_a_replica_that_has_not_restarted_is_accepted_but_never_moves_the_pin_back() -> None:
    pin = KeyPin(A.public).advanced(B.public, ONE, NOW)
    assert pin.advanced(A.public, (), NOW + 1) == pin
    with pytest.raises(NotEndorsed):
        pin.advanced(A.public, (), NOW + OVERLAP)


def test_a_sidecar_that_starts_during_a_rotation_trusts_both_keys() -> None:
    pin = advance_pin(None, B.public, ONE, NOW)
    assert pin.accepted(NOW) == (B.public, A.public)


@pytest.mark.parametrize("history", [(), ONE, RING.history])
def test_a_key_without_endorsement_is_refused(history: tuple[object, ...]) -> None:
    with pytest.raises(NotEndorsed):
        KeyPin(A.public).advanced(D.public, history, NOW)  # type: ignore[arg-type]


def test_a_chain_that_ends_elsewhere_is_refused() -> None:
    with pytest.raises(NotEndorsed):
        KeyPin(A.public).advanced(C.public, ONE, NOW)


def test_a_pin_is_read_back_as_it_was_written() -> None:
    for pin in (KeyPin(A.public), KeyPin(C.public, (A.public, B.public), NOW)):
        assert KeyPin.from_meta(pin.to_meta()) == pin
    # As a version without rotation wrote it.
    assert KeyPin.from_meta({"log_key": KeyPin(A.public).to_meta()["log_key"]}) == KeyPin(A.public)
    assert KeyPin.from_meta({}) is None
    with pytest.raises(sqlite3.DatabaseError):
        KeyPin.from_meta({"log_key": "?"})
