"""Policies from disk: at the start, and whenever a file changes. A loop; knows no rule of merging.

A bad file changes nothing for its tenant: the last good set stays in force, the fault is logged and
counted, and `POST /v1/policies/reload` answers with it. Readiness does not depend on it: a service
that restarts must not refuse to decide by policies that were good because one is misspelt now.
"""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from watchfiles import awatch

from control_api.app_context import AppContext
from control_api.policies.policy_folders import unowned_folders
from control_api.policies.policy_reload import reload_tenant
from control_api.store.queries import tenants
from policies.definitions.definition import LoadError
from policies.definitions.policy_files import files
from policies.ground.errors import NotFound, Unavailable

BY = "disk"
DEBOUNCE_MS = 300
STEP_MS = 50
LOOK_SECONDS = 5
"""How often files are looked at though nothing was reported: a network mount reports nothing."""
MOST_FAULTS = 20
_log = logging.getLogger("sluice.policies")

Stamp = tuple[tuple[str, int, int, int], ...]
"""Path, inode, size and time of change of each of a tenant's files."""


class PolicyFiles:
    """The policy directory, and what of it was taken in."""

    def __init__(self, service: AppContext, directory: Path) -> None:
        self._service = service
        self._directory = directory.resolve()
        self._taken: dict[str, Stamp] = {}
        self._one_look = asyncio.Lock()

    async def load(self) -> None:
        """Every tenant's files, as far as they are good."""
        await unowned_folders(self._service)
        await self._look(frozenset())

    async def watch(self) -> None:
        """Until the service stops."""
        async for changes in awatch(
            self._directory,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            stop_event=self._service.stopping,
            yield_on_timeout=True,
            rust_timeout=LOOK_SECONDS * 1000,
        ):
            try:
                await self._look(self._named(Path(path) for _, path in changes))
            except Unavailable as error:
                # What is in force stays. The stamps have not moved, so the next look tries again.
                _log.warning("policy files can't be taken in: %s", error.message)

    async def _look(self, named: frozenset[str]) -> None:
        """Take in the tenants that are named, and those whose files are not what was taken in."""
        async with self._one_look:
            async with self._service.store.reading_all_tenants() as connection:
                everyone = await tenants.ids(connection)
            # Before they are read: what changes meanwhile differs from the stamp.
            stamps = await asyncio.to_thread(_stamps, self._directory, everyone)
            for tenant_id, stamp in stamps.items():
                if tenant_id in named or stamp != self._taken.get(tenant_id):
                    await self._take(tenant_id)
                    self._taken[tenant_id] = stamp
            if named - stamps.keys():
                await unowned_folders(self._service)

    async def _take(self, tenant_id: str) -> None:
        try:
            done = await reload_tenant(self._service, tenant_id, BY)
        except LoadError as error:
            for fault in error.faults[:MOST_FAULTS]:
                _log.error("policies of tenant `%s` are left as they were: %s", tenant_id, fault)
        except NotFound:
            return
        else:
            if done.added or done.updated or done.removed:
                _log.info(
                    "policies of tenant `%s`: %d added, %d updated, %d removed",
                    tenant_id,
                    len(done.added),
                    len(done.updated),
                    len(done.removed),
                )

    def _named(self, paths: Iterable[Path]) -> frozenset[str]:
        """The tenants in whose folders something was reported."""
        parts = (path.relative_to(self._directory).parts for path in paths)
        return frozenset(each[0] for each in parts if each)


def _stamps(directory: Path, tenant_ids: list[str]) -> dict[str, Stamp]:
    return {tenant_id: _stamp(directory, tenant_id) for tenant_id in tenant_ids}


def _stamp(directory: Path, tenant_id: str) -> Stamp:
    """Empty where the folder is missing, and where it can't be read: taking it in then says why."""
    try:
        paths, _ = files(directory, tenant_id)
        marks = [(path, path.stat()) for path in paths]
    except (LoadError, OSError):
        return ()
    return tuple((str(path), at.st_ino, at.st_size, at.st_mtime_ns) for path, at in marks)
