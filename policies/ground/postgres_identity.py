"""Signs the identity that row policies of a PostgreSQL server read (`sluice postgres identity`).

The value travels in the setting `sluice.identity`, set for one transaction:

    1:<key id>:<backend pid>:<expires>:<state>:<user>:<session>:<mac>

`deploy/commands/postgres/README.md` defines each field; the function `sluice.identity()` in the
database verifies the value. Reads no clock and no file.
"""

import hashlib
import hmac
import re
from typing import Final, Literal, NamedTuple

SETTING: Final = "sluice.identity"
"""The name of the setting that carries the signed value."""
KEY_BYTES: Final = 32
LIFETIME_SECONDS: Final = 60
"""How long a value should be valid: long enough for clocks that differ. A transaction that begins
before it expires keeps its identity to its end."""
LONGEST_LIFETIME_SECONDS: Final = 300
"""The database takes no value that expires later than this after the transaction's start."""

_BLOCK_BYTES = 64  # of SHA-256
_INNER, _OUTER = 0x36, 0x5C  # of RFC 2104
_KEY = re.compile(r"[0-9a-f]{64}\Z")
_KEY_ID = re.compile(r"[a-z0-9_-]{1,32}\Z")

UserState = Literal["claimed", "verified"]
"""`claimed`: the agent named the user, and may name any. `verified`: a token proved the user."""


class UnusableKey(ValueError):
    """not a key, or not a key's id"""


class PostgresIdentity(NamedTuple):
    """For whom one transaction reads.

    `user_id` and `session_id` are identifiers as in `CONTRACT.md`. `backend_pid` is the process id
    that the server sent at login (BackendKeyData). `expires` is in seconds since 1970 UTC.
    """

    user_id: str
    session_id: str | None
    state: UserState
    backend_pid: int
    expires: int


def sign_identity(identity: PostgresIdentity, key_id: str, key: bytes) -> str:
    """Return the value of the setting `sluice.identity`: ASCII, without quotes or backslashes.
    Raises `UnusableKey`."""
    if len(key) != KEY_BYTES:
        raise UnusableKey(f"the key has {len(key)} bytes, expected {KEY_BYTES}")
    check_key_id(key_id)
    signed = ":".join(
        (
            "1",
            key_id,
            str(identity.backend_pid),
            str(identity.expires),
            identity.state,
            identity.user_id.encode().hex(),
            (identity.session_id or "").encode().hex(),
        )
    )
    return f"{signed}:{hmac.digest(key, signed.encode(), 'sha256').hex()}"


def parse_key(text: str) -> bytes:
    """Parse the content of a key file: 64 lower-case hex digits, with spaces and line breaks around
    them. Raises `UnusableKey`, whose message never holds the key."""
    stripped = text.strip()
    if _KEY.match(stripped) is None:
        raise UnusableKey("a key is 64 lower-case hex digits, as `openssl rand -hex 32` prints")
    return bytes.fromhex(stripped)


def check_key_id(key_id: str) -> None:
    """Raise `UnusableKey` unless `key_id` has the form of a key's id."""
    if _KEY_ID.match(key_id) is None:
        raise UnusableKey(f"the key id `{key_id:.40}` must have the form [a-z0-9_-]{{1,32}}")


def hmac_pads(key: bytes) -> tuple[bytes, bytes]:
    """Return the inner and the outer block of HMAC-SHA-256 (RFC 2104) for the key, 64 bytes each.

    SQL has `sha256()` but no HMAC: `sha256(outer || sha256(inner || text))` is one.
    """
    if len(key) > _BLOCK_BYTES:
        key = hashlib.sha256(key).digest()
    block = key.ljust(_BLOCK_BYTES, b"\0")
    return bytes(each ^ _INNER for each in block), bytes(each ^ _OUTER for each in block)
