"""Shows how far the service's own verification of the log has come, and starts it anew.

`verify_log` verifies within the request, which takes minutes for millions of entries.
This one answers at once: the walk goes on in the background, and its result is stored.
"""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.verification import is_running, read_verification
from control_api.log.scheduled.rederivation import stopped
from control_api.requests.base import EmptyRequest
from control_api.responses.checkpoints import Verification
from control_api.store.queries import count_checks, redactions, self_checks
from control_api.store.transaction import Transaction


async def show_verification(app: AppContext, caller: Caller, _: EmptyRequest) -> Verification:
    """Show how far the service has verified the audit trail by itself, and what it found last."""
    return await read_verification(app, caller.tenant_id)


async def start_verification(app: AppContext, caller: Caller, _: EmptyRequest) -> Verification:
    """Verify the audit trail from its oldest entry on, in the background.

    One verification of a log runs at a time: while one does, this shows it. A log with a finding is
    verified from before the finding on. The counts are compared with the entries too. Ask `GET`
    until `running` is false.
    """
    tenant_id = caller.tenant_id

    async def work(tx: Transaction) -> None:
        state = await self_checks.state(tx.connection, tenant_id)
        total = await redactions.log_size(tx.connection, tenant_id)
        if state is not None and not is_running(state, total, tx.now):
            await self_checks.begin_round(tx.connection, tenant_id, stopped=stopped(state))
        compared = await count_checks.state(tx.connection, tenant_id)
        if not compared.is_running(tx.now):
            await count_checks.ask(tx.connection, tenant_id)

    await app.store.write(tenant_id, work)
    # If we die here, the scheduled verification does it within a minute.
    app.asked_logs.add(tenant_id)
    return await read_verification(app, tenant_id)
