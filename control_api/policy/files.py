"""Loads policy files at startup, and whenever a file changes. Knows no rule of merging.

A bad file changes nothing for its tenant: the last good policies stay in force, the fault is logged
and counted, and `POST /v1/policies/reload` answers with it. Readiness does not depend on the files:
a typo in one must not keep a restarted service from deciding by the policies it has.
"""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from watchfiles import awatch

from control_api.policy.bundle import Policies
from control_api.policy.reload import reload_tenant, unowned_folders
from control_api.store.queries import tenant_rows
from policies.definitions.definition import LoadError
from policies.definitions.policy_files import files, guardrail_file
from policies.ground.errors import NotFound, Unavailable
from policies.ground.process.outage_logger import OutageLogger

ACTOR = "disk"
DEBOUNCE_MS = 300
STEP_MS = 50
POLL_SECONDS = 5
"""The interval at which files are checked anyway: a network mount reports no changes."""
MAX_LOGGED_FAULTS = 20
_log = logging.getLogger("sluice.policies")

Stamp = tuple[tuple[str, int, int, int], ...]
"""Path, inode, size and modification time of each of a tenant's files."""


class PolicyFiles:
    """The policy directory. `_loaded` is the stamp of each tenant's files when last loaded, and
    `_faulty` are the tenants whose files could not be loaded then."""

    def __init__(self, policies: Policies, directory: Path, stopping: asyncio.Event) -> None:
        self._policies, self._stopping = policies, stopping
        self._directory = directory.resolve()
        self._loaded: dict[str, Stamp] = {}
        self._faulty: set[str] = set()
        self._lock = asyncio.Lock()
        self._outage = OutageLogger(
            _log, "policy files can't be loaded", "policy files are loaded again"
        )

    async def load(self) -> None:
        """Load every tenant's files; tenants with faults keep their policies."""
        await unowned_folders(self._policies)
        await self._load_changed(frozenset())

    async def watch(self) -> None:
        """Load the files that change, until the service stops."""
        # Each timeout yields an empty set: the stamps then show the changes that none reported.
        async for changes in awatch(
            self._directory,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            stop_event=self._stopping,
            yield_on_timeout=True,
            rust_timeout=POLL_SECONDS * 1000,
        ):
            try:
                await self._load_changed(self._tenants_of(Path(path) for _, path in changes))
            except Unavailable as error:
                # The policies stay in force. The stamps are unchanged, so the next round retries.
                self._outage.failing(error.message)
            else:
                self._outage.recovered()

    async def _load_changed(self, reported: frozenset[str]) -> None:
        """Load the files of the `reported` tenants, and of those whose stamp has changed."""
        async with self._lock:
            async with self._policies.store.reading_all_tenants() as connection:
                tenant_ids = await tenant_rows.ids(connection)
            # Stamped before the files are read, so a change during the read is noticed next time.
            stamps = await asyncio.to_thread(_stamps, self._directory, tenant_ids)
            for tenant_id, stamp in stamps.items():
                if tenant_id in reported or stamp != self._loaded.get(tenant_id):
                    await self._load(tenant_id)
                    self._loaded[tenant_id] = stamp
            # A change was reported in a folder that belongs to no tenant.
            if reported - stamps.keys():
                await unowned_folders(self._policies)

    async def _load(self, tenant_id: str) -> None:
        try:
            done = await reload_tenant(self._policies, tenant_id, ACTOR)
        except LoadError as error:
            for fault in error.faults[:MAX_LOGGED_FAULTS]:
                _log.error("policies of tenant `%s` stay as they were: %s", tenant_id, fault)
            self._faulty.add(tenant_id)
        except NotFound:
            return
        else:
            if tenant_id in self._faulty:
                self._faulty.remove(tenant_id)
                _log.warning("recovered: the policy files of tenant `%s` are in force", tenant_id)
            if done.added or done.updated or done.removed:
                _log.info(
                    "policies of tenant `%s`: %d added, %d updated, %d removed",
                    tenant_id,
                    len(done.added),
                    len(done.updated),
                    len(done.removed),
                )

    def _tenants_of(self, paths: Iterable[Path]) -> frozenset[str]:
        """The tenants whose folders contain these paths."""
        parts = (path.relative_to(self._directory).parts for path in paths)
        return frozenset(each[0] for each in parts if each)


def _stamps(directory: Path, tenant_ids: list[str]) -> dict[str, Stamp]:
    return {tenant_id: _stamp(directory, tenant_id) for tenant_id in tenant_ids}


def _stamp(directory: Path, tenant_id: str) -> Stamp:
    """Empty if the folder is missing or can't be read; loading it then reports why."""
    try:
        paths, _ = files(directory, tenant_id)
        rules = guardrail_file(directory, tenant_id)
        paths += [] if rules is None else [rules]
        stats = [(path, path.stat()) for path in paths]
    except (LoadError, OSError):
        return ()
    return tuple((str(path), at.st_ino, at.st_size, at.st_mtime_ns) for path, at in stats)
