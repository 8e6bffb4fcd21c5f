"""The transactions of a rebuild: each bounded, under the lock of the log's head, and the first that
changes anything together with the entry that says so. Knows nothing of what is changed."""

from collections.abc import Awaitable, Callable

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.scheduled.rederivation import stopped
from control_api.store.queries import count_checks, purges, self_checks
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.trail.change import change_record
from policies.trail.record import Record

BEGUN, DONE = "log.rebuild_begun", "log.rebuilt"
"""The changes of a rebuild in the log: before the first row was changed, and after the last."""


class RebuildChanges:
    """The changes of one rebuild of one log. `new_id` draws entry ids."""

    def __init__(self, store: Store, tenant_id: str, new_id: Callable[[], str]) -> None:
        self._store, self._tenant_id, self._new_id = store, tenant_id, new_id
        self._begun = False

    async def make(self, work: Callable[[AsyncConnection], Awaitable[int]]) -> int:
        """Run `work` in a transaction; it returns how many things it changed."""
        begun = self._begun

        async def change(tx: Transaction) -> int:
            # Appends and purges wait for this lock, so neither comes between.
            await tx.connection.run_sync(purges.lock, self._tenant_id)
            changed = await work(tx.connection)
            if changed and not begun:
                await tx.append(self._record(BEGUN, {}))
            return changed

        # If we die before the commit, nothing has happened; after it, the log says that a rebuild
        # has begun, and the next one changes what is left.
        changed = await self._store.write(self._tenant_id, change)
        self._begun = begun or changed > 0
        return changed

    async def end(self, detail: dict[str, int]) -> int | None:
        """Have the log verified anew, and record what was changed, if anything was: the number of
        that entry."""

        async def work(tx: Transaction) -> int | None:
            seq = None
            if self._begun:
                seq = (await tx.append(self._record(DONE, detail))).seq
            state = await self_checks.state(tx.connection, self._tenant_id)
            if state is not None:
                halted = stopped(state)
                await self_checks.begin_round(tx.connection, self._tenant_id, stopped=halted)
            await count_checks.ask(tx.connection, self._tenant_id)
            return seq

        return await self._store.write(self._tenant_id, work)

    def _record(self, what: str, detail: dict[str, int]) -> Record:
        return change_record(what, self._tenant_id, "system", detail, record_id=self._new_id())
