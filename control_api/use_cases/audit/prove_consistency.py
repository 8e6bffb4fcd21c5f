"""Proves that the log only grew since an earlier checkpoint."""

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.log.proofs.prove import prove_growth
from control_api.requests.base import LogSize, RequestModel
from control_api.responses.proofs import ConsistencyProof
from control_api.store.queries import log_keys
from policies.ground.canonical import b64
from policies.ground.errors import invalid


class ConsistencyRequest(RequestModel):
    """`from` and `to` are numbers of entries, `from` at most `to`."""

    old_size: LogSize = Field(alias="from")
    new_size: LogSize | None = Field(None, alias="to")


async def prove_consistency(
    app: AppContext, caller: Caller, request: ConsistencyRequest
) -> ConsistencyProof:
    """Prove that the log of a checkpoint begins with the entries of an earlier one.

    404 means that no checkpoint of `to` entries is kept. 409 means that the log has no checkpoint
    yet, that the checkpoint is smaller than `from`, or that the entries needed were purged; the
    message says which.
    """
    if request.new_size is not None and request.old_size > request.new_size:
        raise invalid([f"from: is larger than `to`, which is {request.new_size}"], "query")
    publics = await log_keys.trusted(app.store, app.ring)
    proven = await prove_growth(
        app.store, caller.tenant_id, request.old_size, request.new_size, publics
    )
    hashes = [b64(each) for each in proven.hashes]
    return ConsistencyProof(proven.old_size, proven.new_size, hashes, proven.note)
