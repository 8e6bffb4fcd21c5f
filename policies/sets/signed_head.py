"""The control API's signed statements: a policy set's head, the heartbeat that confirms it, and the
holder of a session. Because they are signed, they may be transported by anyone, such as a Redis.

    sealed = signature (64 bytes, Ed25519) ‖ canonical JSON

Each kind is signed under its own prefix, and names its tenant and the store's epoch, so that one
statement can't be passed off as another. Knows the formats. Doesn't know where statements are
stored, or when one is too old to trust.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from policies.definitions.model import Session, SessionState
from policies.ground.canonical import encode
from policies.ground.signing import Signer, verify

SIGNATURE = 64
MAX_CHANGED_NAMES = 1000
"""The most names of changed documents that a head lists. If more changed, it says that any may have
changed."""

_HEAD = b"sluice/policy-set/head/v1\0"
_BEAT = b"sluice/policy-set/heartbeat/v1\0"
_CLAIM = b"sluice/session/v1\0"

T = TypeVar("T")


class SignatureRejected(ValueError):
    """the statement is not signed by the log's key, or concerns another tenant"""


@dataclass(frozen=True, slots=True)
class SetHead:
    """The signed head of a policy set: the set at `revision` has the digest `root` in its Merkle
    map (`policies.sets.merkle_map`). `names` lists the documents that changed after the revision
    `since`; None means that any may have changed."""

    tenant_id: str
    epoch: str
    since: int
    revision: int
    root: str
    names: tuple[str, ...] | None

    def sealed(self, signer: Signer) -> bytes:
        names = None if self.names is None else list(self.names)
        return _sealed(_HEAD, _fields(self) | {"names": names}, signer)

    @classmethod
    def opened(cls, sealed: bytes, public: bytes, tenant_id: str) -> "SetHead":
        """Verify and parse a sealed head. Raises `SignatureRejected` unless it is signed by the key
        `public` and concerns the tenant."""
        return _opened(_HEAD, sealed, public, tenant_id, cls._read)

    @classmethod
    def _read(cls, body: dict[str, Any]) -> "SetHead":
        names = body.pop("names")
        return cls(**body, names=None if names is None else tuple(names))


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The signed statement that the store held the tenant's policy set at `revision` after each of
    `nonces` was drawn, which proves that the set is fresh. `now` is the control API's clock at that
    time, in microseconds since 1970 UTC."""

    tenant_id: str
    epoch: str
    revision: int
    now: int
    nonces: tuple[str, ...]

    def sealed(self, signer: Signer) -> bytes:
        return _sealed(_BEAT, _fields(self) | {"nonces": list(self.nonces)}, signer)

    @classmethod
    def opened(cls, sealed: bytes, public: bytes, tenant_id: str) -> "Heartbeat":
        return _opened(_BEAT, sealed, public, tenant_id, cls._read)

    @classmethod
    def _read(cls, body: dict[str, Any]) -> "Heartbeat":
        return cls(**{**body, "nonces": tuple(body["nonces"])})


@dataclass(frozen=True, slots=True)
class Claim:
    """The signed statement which agent holds a session, according to the store. `expires_at` is in
    microseconds since 1970 UTC."""

    tenant_id: str
    epoch: str
    session_id: str
    state: SessionState
    agent_role: str
    agent_id: str | None
    expires_at: int

    def session(self) -> Session:
        """Return the session in the state that it had when the statement was signed."""
        return Session(self.session_id, self.state, self.agent_role, self.agent_id)

    def sealed(self, signer: Signer) -> bytes:
        return _sealed(_CLAIM, _fields(self), signer)

    @classmethod
    def opened(cls, sealed: bytes, public: bytes, tenant_id: str) -> "Claim":
        return _opened(_CLAIM, sealed, public, tenant_id, lambda body: cls(**body))


def _fields(statement: SetHead | Heartbeat | Claim) -> dict[str, Any]:
    return {name: getattr(statement, name) for name in statement.__slots__}


def _sealed(prefix: bytes, fields: dict[str, Any], signer: Signer) -> bytes:
    body = encode(fields)
    # The signature comes first: its length is fixed, so nothing has to mark where the body begins.
    return signer.sign(prefix + body) + body


def _opened(
    prefix: bytes,
    sealed: bytes,
    public: bytes,
    tenant_id: str,
    read: Callable[[dict[str, Any]], T],
) -> T:
    signature, body = sealed[:SIGNATURE], sealed[SIGNATURE:]
    if not verify(public, signature, prefix + body):
        raise SignatureRejected("the signature was not made by the log's key")
    # INVARIANT: nothing is decoded before its signature is verified. With a good signature these
    # are the bytes that `sealed` wrote, for this tenant or another.
    fields = orjson.loads(body)
    if fields["tenant_id"] != tenant_id:
        raise SignatureRejected(f"it does not concern tenant `{tenant_id}`")
    return read(fields)
