"""In whose name this process signs what it says of policy sets, and what it believes of what others
signed. Knows keys; knows neither Redis nor the store."""

from collections.abc import Iterable
from dataclasses import dataclass

from control_api.publishing.redis_sets import HeldSet
from policies.ground.canonical import encode
from policies.ground.signing import KeyRing
from policies.sets.redis_keys import at
from policies.sets.signed_head import SetHead, SignatureRejected


@dataclass(frozen=True, slots=True)
class SetSigner:
    """The log's keys, and the store whose revisions are counted."""

    ring: KeyRing
    epoch: str

    @property
    def history(self) -> bytes:
        """Which key endorsed which, as it lies in the set."""
        return encode([each.to_wire() for each in self.ring.history])

    def at(self, revision: int) -> bytes:
        return at(self.epoch, revision)

    def stands_in(self, held: HeldSet) -> bool:
        """Whether the set says that it is of our store, at least."""
        epoch, _, revision = (held.at or b"").rpartition(b":")
        return epoch == self.epoch.encode() and revision.isdigit()

    def opened(self, tenant_id: str, sealed: bytes, publics: Iterable[bytes]) -> SetHead | None:
        """The head, None where it is not signed by one of these keys, or of another store."""
        for public in publics:
            try:
                head = SetHead.opened(sealed, public, tenant_id)
            except SignatureRejected:
                continue
            return head if head.epoch == self.epoch else None
        return None

    def is_ours(self, tenant_id: str, sealed: bytes | None) -> bool:
        """Whether it is signed by the key that this process signs by."""
        mine = (self.ring.signer.public,)
        return sealed is not None and self.opened(tenant_id, sealed, mine) is not None
