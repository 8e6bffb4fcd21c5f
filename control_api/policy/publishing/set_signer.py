"""Holds the key that signs this process's statements about policy sets, and verifies the heads that
other replicas signed. Knows neither Redis nor the store.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from control_api.policy.publishing.redis_sets import HeldSet
from policies.ground.canonical import encode
from policies.ground.signing import KeyRing
from policies.sets.redis_keys import at
from policies.sets.signed_head import SetHead, SignatureRejected


@dataclass(frozen=True, slots=True)
class SetSigner:
    """The log's keys, and the epoch of the store whose revisions are signed."""

    ring: KeyRing
    epoch: str

    @property
    def history(self) -> bytes:
        """The endorsements that led to the current key, as the set stores them."""
        return encode([each.to_wire() for each in self.ring.history])

    def at(self, revision: int) -> bytes:
        return at(self.epoch, revision)

    def owns(self, held: HeldSet) -> bool:
        """Whether the set claims to come from this store. Nothing signs that claim."""
        epoch, _, revision = (held.at or b"").rpartition(b":")
        return epoch == self.epoch.encode() and revision.isdigit()

    def open_head(self, tenant_id: str, sealed: bytes, publics: Iterable[bytes]) -> SetHead | None:
        """The head, or None if none of these keys signed it or it comes from another store."""
        # `opened` verifies the signature before it parses the head. Trying each key is cheap: there
        # is only one more for each rotation.
        for public in publics:
            try:
                head = SetHead.opened(sealed, public, tenant_id)
            except SignatureRejected:
                continue
            return head if head.epoch == self.epoch else None
        return None

    def signed_by_us(self, tenant_id: str, sealed: bytes | None) -> bool:
        """Whether this process's own key signed the head."""
        mine = (self.ring.signer.public,)
        return sealed is not None and self.open_head(tenant_id, sealed, mine) is not None
