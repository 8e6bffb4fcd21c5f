"""The signed value of the setting `sluice.identity`: golden values, which the SQL that `sluice
postgres identity` prints must verify in later versions too."""

from __future__ import annotations

import hashlib

import pytest

from policies.ground.postgres_identity import (
    PostgresIdentity,
    UnusableKey,
    hmac_pads,
    parse_key,
    sign_identity,
)

KEY = bytes(range(32))
VECTORS = {
    PostgresIdentity("ada", "ses_1", "claimed", 4711, 1_800_000_000): (
        "1:k-1:4711:1800000000:claimed:616461:7365735f31"
        ":0e1a9fe72b24194d828192ef7590be57928d103f07805418fa68867b4aa29d8c"
    ),
    PostgresIdentity("okta:Zoë", None, "verified", 1, 1_800_000_060): (
        "1:k-1:1:1800000060:verified:6f6b74613a5a6fc3ab:"
        ":d73a623f792056a944bf75157a84041da03dcce013bc3ba56f5c2cfc7f351adf"
    ),
}


@pytest.mark.parametrize("identity", VECTORS)
def test_an_identity_is_signed_as_the_format_says(identity: PostgresIdentity) -> None:
    assert sign_identity(identity, "k-1", KEY) == VECTORS[identity]


def test_two_digests_with_the_pads_are_the_mac() -> None:
    inner, outer = hmac_pads(KEY)
    signed, _, mac = sign_identity(next(iter(VECTORS)), "k-1", KEY).rpartition(":")
    within = hashlib.sha256(inner + signed.encode()).digest()
    assert hashlib.sha256(outer + within).hexdigest() == mac


def test_a_key_is_64_hex_digits_and_no_message_holds_it() -> None:
    assert parse_key(f" {KEY.hex()}\n") == KEY
    for text in ("", KEY.hex()[1:], KEY.hex() + "0", KEY.hex().upper(), "x" * 64):
        with pytest.raises(UnusableKey) as refused:
            parse_key(text)
        assert not text or text not in str(refused.value)
    for key_id, key in (("K", KEY), ("", KEY), ("a:b", KEY), ("k-1", KEY[1:])):
        with pytest.raises(UnusableKey):
            sign_identity(next(iter(VECTORS)), key_id, key)
