"""Make an API key. Its secret is in the answer, this once; what is kept is its SHA-256."""

from typing import Any, ClassVar

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import created_key
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.management import CreatedKey, TenantScope
from control_api.store.queries import keys
from control_api.store.queries.keys import StoredKey
from control_api.store.transaction import Transaction
from policies.ground.ids import prefixed
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import key_document, key_name
from policies.trail.record import change_record

DAY = 86_400_000_000
DEFAULT_DAYS = 365


class NewKey(RequestModel):
    """What a key is to be (`service.md` 4.5). `expires_days` absent is a year, and never for a key
    of scope `sidecar`; null is never."""

    example: ClassVar[dict[str, Any]] = {"name": "underwriting agents", "scope": "evaluate"}

    name: Identifier
    scope: TenantScope
    expires_days: int | None = Field(DEFAULT_DAYS, ge=1, le=3650)

    @property
    def days(self) -> int | None:
        """How long it lives; None for ever. A fleet must not fall silent a year after it was set
        up, so a sidecar's key expires only where somebody asks for it."""
        forgotten = "expires_days" not in self.model_fields_set
        return None if forgotten and self.scope == "sidecar" else self.expires_days


async def create_key(service: AppContext, caller: Caller, asked: NewKey) -> CreatedKey:
    """Create an API key; its secret is in this answer and nowhere else."""
    secret = make_key(service.entropy(32))
    tenant_id = caller.tenant.tenant_id

    async def work(tx: Transaction) -> StoredKey:
        key = new_key(asked, secret, service.entropy(16), tx.now)
        await add_key(tx, key, caller.by, service.new_id())
        return key

    return created_key(await service.store.write(tenant_id, work), secret)


def new_key(asked: NewKey, secret: str, entropy: bytes, now: int) -> StoredKey:
    days = asked.days
    return StoredKey(
        key_id=prefixed("key_", entropy),
        name=asked.name,
        scope=asked.scope,
        digest=key_digest(secret),
        bound_agent_id=None,
        permitted_roles=(),
        expires_at=None if days is None else now + days * DAY,
        created_at=now,
    )


async def add_key(tx: Transaction, key: StoredKey, by: str, record_id: str) -> None:
    """The row, its document, and the record of who made it; never the secret."""
    await keys.add(tx.connection, tx.tenant_id, key)
    await tx.publish({key_name(key.digest): key_document(key.published())})
    detail = {"name": key.name, "scope": key.scope, "expires_at": key.expires_at}
    await tx.append(change_record("key.created", key.key_id, by, detail, record_id=record_id))
