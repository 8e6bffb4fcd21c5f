"""What a control API says, signed, of a policy set: how it stands, that it still stands so,
and whose a session is. It may come by way of anybody.

    sealed = signature (64 bytes, Ed25519) ‖ canonical JSON

Each kind is signed under a prefix of its own, and names its tenant and the store's epoch: none can
be shown as another's. Knows the forms. Knows neither keys of a database nor when to believe.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from policies.definitions.model import Session, SessionState
from policies.ground.canonical import encode
from policies.ground.signing import Signer, verify

SIGNATURE = 64
MANY = 1000
"""Past so many changed names a head says that any may have changed."""

_HEAD = b"sluice/policy-set/head/v1\0"
_BEAT = b"sluice/policy-set/heartbeat/v1\0"
_CLAIM = b"sluice/session/v1\0"

T = TypeVar("T")


class SignatureRejected(ValueError):
    """it is not signed by the key, or is about another tenant"""


@dataclass(frozen=True, slots=True)
class SetHead:
    """The policy set at `revision`: `root` is the digest of its Merkle map
    (`policies.sets.merkle_map`).
    `names` are the documents that changed after the revision `since`, None for any."""

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
        """`SignatureRejected` where it is none of the tenant's, signed by this key."""
        return _opened(_HEAD, sealed, public, tenant_id, cls._read)

    @classmethod
    def _read(cls, body: dict[str, Any]) -> "SetHead":
        names = body.pop("names")
        return cls(**body, names=None if names is None else tuple(names))


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The store had the tenant's policy set at `revision` after each of `nonces` had been drawn;
    `now` is the control API's clock then, in microseconds."""

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
    """Whose a session is, as the store has it. `expires_at` in microseconds."""

    tenant_id: str
    epoch: str
    session_id: str
    state: SessionState
    agent_role: str
    agent_id: str | None
    expires_at: int

    def session(self) -> Session:
        """As it stood when this was signed."""
        return Session(self.session_id, self.state, self.agent_role, self.agent_id)

    def sealed(self, signer: Signer) -> bytes:
        return _sealed(_CLAIM, _fields(self), signer)

    @classmethod
    def opened(cls, sealed: bytes, public: bytes, tenant_id: str) -> "Claim":
        return _opened(_CLAIM, sealed, public, tenant_id, lambda body: cls(**body))


def _fields(said: SetHead | Heartbeat | Claim) -> dict[str, Any]:
    return {name: getattr(said, name) for name in said.__slots__}


def _sealed(prefix: bytes, fields: dict[str, Any], signer: Signer) -> bytes:
    body = encode(fields)
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
        raise SignatureRejected("the signature is not by the log's key")
    # Signed by the key: it is what `sealed` wrote, of this tenant or another.
    fields = orjson.loads(body)
    if fields["tenant_id"] != tenant_id:
        raise SignatureRejected("it is about another tenant")
    return read(fields)
