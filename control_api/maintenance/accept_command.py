"""The command `accept-incarnation`: lets a log be signed again that is behind its checkpoints.

It works beside the running service, which takes the new incarnation up within five seconds. Knows
the operator's output; `checkpoints.acceptance` does the work.
"""

import asyncio
from collections.abc import Callable

from control_api.checkpoint_store.location import open_store
from control_api.checkpoints.acceptance import Acceptance
from control_api.checkpoints.divergence import Diverged
from control_api.log import log_key
from control_api.settings import Settings
from control_api.store.queries import tenants
from control_api.store.startup import explain_startup_faults, opened_store
from policies.ground.clock import Clock
from policies.ground.errors import NotFound, SluiceError
from policies.ground.ids import uuid7

MAX_REASON = 1000
"""Characters of an operator's reason: it stays in the log."""
PINS = """\
What pinned the log before goes on refusing it, until each has accepted the new origin:
  a sidecar                       remove `cache/pinned-checkpoint`, and restart it
  a witness                       its operator adds the new origin to `logs`, and restarts it
  sluice verify --url --state     begin a new state file
  sluice verify --checkpoint      give the checkpoint above in place of the old one
  a browser with the console      its reader confirms the new origin
Tell each, by another way than this service, why the log lost entries, and the new origin."""
"""What an operator does next. A pin that followed by itself would be none."""


async def accept_incarnation(
    settings: Settings,
    clock: Clock,
    entropy: Callable[[int], bytes],
    tenant_id: str,
    reason: str,
    report: Callable[[str], None],
) -> bool:
    """Accept the log of one tenant as a new incarnation; False if that can't be done, with the
    cause in the report. Raises `NotFound` for an unknown tenant."""
    if not reason.strip() or len(reason) > MAX_REASON or not reason.isprintable():
        report(f"--reason: must be one line of 1 to {MAX_REASON} characters")
        return False
    # The service's own key: the new incarnation must be signed by it.
    ring = log_key.open_existing(settings.data_dir, settings.keys_dir)

    def new_id() -> str:
        return uuid7(clock.now(), entropy(10))

    async with opened_store(settings, clock, asyncio.Event()) as store:
        assert store is not None  # the stop event is never set
        async with explain_startup_faults(settings):
            await log_key.ensure_database_key(store, ring, settings.keys)
            async with store.reading(tenant_id) as connection:
                if await tenants.get(connection, tenant_id) is None:
                    raise NotFound(f"no such tenant: `{tenant_id}`")
        notes = open_store(settings.checkpoint_store)
        try:
            done = await Acceptance(store, ring, notes, new_id).accept(tenant_id, reason)
        except Diverged as error:
            report(
                f"{tenant_id}: can't be signed even as a new incarnation: {error.finding.text()}"
            )
        except SluiceError as error:
            report(f"{tenant_id}: nothing accepted: {error}")
        else:
            report(f"{tenant_id}: accepted as `{done.origin}` by entry {done.seq}")
            report(done.checkpoint.note.rstrip("\n"))
            report(f"\n{PINS}")
            return True
    return False
