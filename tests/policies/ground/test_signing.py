"""Signatures: made by one key, rejected for every other. Private keys are never shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.signing import Signer, receipt_message, verify

SIGNER = Signer(bytes(range(32)))

# RFC 8032, section 7.1, test 2.
SEED = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
PUBLIC = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
SIGNATURE = (
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_a_signature_is_that_of_rfc_8032() -> None:
    signer = Signer(bytes.fromhex(SEED))
    assert signer.public.hex() == PUBLIC
    assert signer.sign(b"\x72").hex() == SIGNATURE


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_only_the_message_that_was_signed_verifies(message: bytes, other: bytes) -> None:
    signature = SIGNER.sign(message)
    assert verify(SIGNER.public, signature, message)
    assert verify(SIGNER.public, signature, other) == (other == message)
    assert not verify(Signer(bytes(32)).public, signature, message)


@pytest.mark.parametrize("place", range(0, 64, 5))
def test_a_changed_signature_does_not_verify(place: int) -> None:
    signature = bytearray(SIGNER.sign(b"message"))
    signature[place] ^= 1
    assert not verify(SIGNER.public, bytes(signature), b"message")


@pytest.mark.parametrize("public", [b"", bytes(31), bytes(33), b"\xff" * 32])
def test_a_text_that_is_not_a_public_key_verifies_nothing(public: bytes) -> None:
    assert not verify(public, SIGNER.sign(b"message"), b"message")


@pytest.mark.parametrize("signature", [b"", bytes(63), bytes(64), bytes(65)])
def test_a_text_that_is_not_a_signature_does_not_verify(signature: bytes) -> None:
    assert not verify(SIGNER.public, signature, b"message")


def test_a_key_that_was_made_is_made_again_from_its_seed() -> None:
    made = Signer.generate()
    assert len(made.seed()) == 32
    assert Signer(made.seed()).public == made.public
    assert Signer.generate().public != made.public


def test_a_key_is_never_shown() -> None:
    assert SIGNER.seed().hex() not in repr(SIGNER) + str(SIGNER)
    assert repr(bytes(range(32))) not in repr(SIGNER)


def test_a_receipt_s_message_depends_on_each_field() -> None:
    messages = {
        receipt_message(*fields)
        for fields in [
            ("t", "s", "i", 1, bytes(32)),
            ("u", "s", "i", 1, bytes(32)),
            ("t", "u", "i", 1, bytes(32)),
            ("t", "s", "u", 1, bytes(32)),
            ("t", "s", "i", 2, bytes(32)),
            ("t", "s", "i", 1, b"\1" * 32),
            ("ts", "", "i", 1, bytes(32)),
        ]
    }
    assert len(messages) == 7
    assert all(message.startswith(b"audit/receipt/v1\0{") for message in messages)
