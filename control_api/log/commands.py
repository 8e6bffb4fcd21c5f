"""Runs the commands `rebuild-lists` and `accept-incarnation`, which work on the log whether or not
the service is running.

A running service notices a new incarnation within five seconds.
"""

from collections.abc import Callable

from control_api.checkpoint_store.location import open_store
from control_api.log import log_key
from control_api.log.append import Changes
from control_api.log.checkpoints.acceptance import Acceptance
from control_api.log.checkpoints.expected import Diverged
from control_api.log.counts import EntriesMoved, Uncountable
from control_api.log.rebuild import Rebuilt, rebuild
from control_api.settings import Settings
from control_api.store.opening import command_store, explain_startup_faults
from control_api.store.queries import tenant_rows
from control_api.store.store import Store
from policies.ground.clock import Clock
from policies.ground.errors import NotFound, SluiceError


async def rebuild_lists(
    settings: Settings,
    clock: Clock,
    entropy: Callable[[int], bytes],
    tenant_id: str | None,
    report: Callable[[str], None],
) -> bool:
    """Rebuild the columns, index and counts of one tenant's log, or of all logs if `tenant_id` is
    None. Returns True if all could be rebuilt. Raises `NotFound` for an unknown tenant."""
    new_id = Changes(clock, entropy).new_id
    async with command_store(settings, clock) as store:
        async with explain_startup_faults(settings), store.reading_all_tenants() as connection:
            chosen = await tenant_rows.chosen(connection, tenant_id)
        # A list, so that `all` does not stop at a failure.
        return all([await _rebuild(store, each, new_id, report) for each in chosen])


async def _rebuild(
    store: Store, tenant_id: str, new_id: Callable[[], str], report: Callable[[str], None]
) -> bool:
    try:
        done = await rebuild(store, tenant_id, new_id, report)
    except EntriesMoved:
        report(f"{tenant_id}: the counts were not rebuilt, since a purge goes on: run this again")
    except Uncountable as error:
        report(f"{tenant_id}: entry {error.seq} can't be read, so the counts were not rebuilt")
    except SluiceError as error:
        report(f"{tenant_id}: not rebuilt: {error}")
    else:
        report(f"{tenant_id}: {summary(done)}")
        return not done.damaged
    return False


def summary(done: Rebuilt) -> str:
    """Return the text that describes a finished rebuild, with a line for each damaged entry."""
    changed = f"{done.rows} rows, {done.spans} blocks of times and {done.counts} counts changed"
    if done.seq is not None:
        changed += f", recorded by entry {done.seq}"
    if done.damaged:
        changed += f"; {done.damaged} entries don't verify, and they and all counts were left:"
        changed += "".join(f"\n  {each.text()}" for each in done.findings)
        if done.damaged > len(done.findings):
            changed += f"\n  and {done.damaged - len(done.findings)} more"
    return changed


MAX_REASON = 1000
"""The most characters of the reason that an operator gives, because it stays in the log."""
PINS = """\
What pinned the log before goes on refusing it, until each has accepted the new origin:
  a sidecar                       remove `cache/pinned-checkpoint`, and restart it
  a witness                       its operator adds the new origin to `logs`, and restarts it
  sluice verify --url --state     begin a new state file
  sluice verify --checkpoint      give the checkpoint above in place of the old one
  a browser with the console      its reader confirms the new origin
Tell each, by another way than this service, why the log lost entries, and the new origin."""
"""The instructions that the command prints for the operator. Everything that has pinned the old
origin must be told by hand to accept the new one: a pin that followed a change without being asked
would protect nothing."""


async def accept_incarnation(
    settings: Settings,
    clock: Clock,
    entropy: Callable[[int], bytes],
    tenant_id: str,
    reason: str,
    report: Callable[[str], None],
) -> bool:
    """Accept the log of one tenant as a new incarnation. Returns False if that can't be done, and
    reports the cause. Raises `NotFound` for an unknown tenant."""
    if not reason.strip() or len(reason) > MAX_REASON or not reason.isprintable():
        report(f"--reason: must be one line of 1 to {MAX_REASON} characters")
        return False
    # The service's own key: the new incarnation must be signed by it.
    ring = log_key.open_existing(settings.data_dir, settings.keys_dir)
    new_id = Changes(clock, entropy).new_id
    async with command_store(settings, clock) as store:
        async with explain_startup_faults(settings):
            await log_key.ensure_database_key(store, ring, settings.keys)
            async with store.reading(tenant_id) as connection:
                if await tenant_rows.get(connection, tenant_id) is None:
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
