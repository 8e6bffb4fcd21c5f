"""Makes a tenant's policies and guardrails match its files, all or none (`CONTRACT.md`, Policies):
at startup, when a file changes, and for a reload request. Reports folders that belong to no tenant.

    read the files > plan against the rows > write, if the rows have not changed since

A bad file changes nothing for its tenant: the last good policies stay in force, the fault is logged
and counted, and `POST /v1/policies/reload` answers with it. Readiness does not depend on the files:
a typo in one must not keep a restarted service from deciding by the policies it has.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from watchfiles import awatch

from control_api.metrics.labels import Reload
from control_api.policy import guardrail_operations, guardrails, policy_change
from control_api.policy.bundle import Policies, RefusedFiles
from control_api.policy.guardrail_operations import FilePlan
from control_api.policy.guardrails import StoredGuardrail
from control_api.policy.models import Reloaded
from control_api.policy.plan import Plan, plan
from control_api.policy.policy_change import GuardrailBroken, require_new
from control_api.store.queries import policy_rows, tenant_rows
from control_api.store.queries.policy_rows import StoredPolicy
from control_api.store.schema.statements import chunks
from control_api.store.transaction import Transaction
from policies.definitions.definition import Definition, DefinitionFault, LoadError
from policies.definitions.load import TenantDefinitions, load_definitions
from policies.definitions.policy_files import (
    UnownedFolder,
    files,
    guardrail_file,
    has_folder,
    strays,
    unowned,
)
from policies.definitions.policy_files import tenants as folders
from policies.ground.errors import Conflict, NotFound, Unavailable
from policies.ground.ids import prefixed
from policies.ground.process.outage_logger import OutageLogger

_log = logging.getLogger("sluice.policies")
_ATTEMPTS = 5
MAX_SHOWN = 20
"""The most faults of refused files that are kept for display."""


class FilesBreakGuardrail(LoadError):
    """the tenant's files would break a guardrail, theirs or one of the API"""

    def __init__(self, fault: DefinitionFault, broken: GuardrailBroken) -> None:
        super().__init__([fault])
        self.broken = broken


class _TenantFiles(NamedTuple):
    """The definitions in a tenant's files. `has_folder` is True if the tenant has a folder in the
    policy directory."""

    definitions: TenantDefinitions
    has_folder: bool


def _read(directory: Path, tenant_id: str) -> _TenantFiles:
    # Asked before and after: a folder renamed during the read must not look like an empty one.
    before = has_folder(directory, tenant_id)
    definitions = load_definitions(directory, tenant_id)
    return _TenantFiles(definitions, before and has_folder(directory, tenant_id))


async def reload_tenant(policies: Policies, tenant_id: str, by: str) -> Reloaded:
    """Load the tenant's files, and return what that changed of its policies. If it raises
    `LoadError`, nothing has changed."""
    directory = policies.directory
    if directory is None:
        return _answer(Plan())
    try:
        # In a thread, because reading files blocks, and the disk may be slow.
        files = await asyncio.to_thread(_read, directory, tenant_id)
        definitions = files.definitions
        try:
            done, rules = await _apply(policies, tenant_id, files, by)
        except GuardrailBroken as broken:
            fault = _guardrail_broken(broken, tenant_id, definitions)
            raise FilesBreakGuardrail(fault, broken) from broken
    except LoadError as error:
        _note_refused(policies, tenant_id, error)
        raise
    except Conflict as error:
        # A fault of the files as a whole, such as a role's document that is too large.
        refused = LoadError([DefinitionFault(tenant_id, 0, "", error.message)])
        _note_refused(policies, tenant_id, refused)
        raise refused from error
    policies.refused_files.pop(tenant_id, None)
    changed = done.changes or rules
    policies.reloads.labels(Reload.changed if changed else Reload.unchanged).inc()
    if rules:
        counts = len(rules.added), len(rules.changed), len(rules.removed)
        shown = "guardrails of tenant `%s`: %d added, %d updated, %d removed"
        _log.info(shown, tenant_id, *counts)
    if done.removes_last:
        denied = "tenant `%s` has no policies now: everything is denied by `default_deny`"
        _log.warning(denied, tenant_id)
    return _answer(done)


def _note_refused(policies: Policies, tenant_id: str, error: LoadError) -> None:
    policies.reloads.labels(Reload.refused).inc()
    faults = tuple(str(each) for each in error.faults[:MAX_SHOWN])
    policies.refused_files[tenant_id] = RefusedFiles(policies.clock.now(), faults)


async def _apply(
    policies: Policies, tenant_id: str, files: _TenantFiles, by: str
) -> tuple[Plan, FilePlan]:
    """Plan the changes, then write them if the plan is still valid; otherwise plan again."""
    definitions = files.definitions
    # Plan outside the transaction: comparing all of a tenant's policies under its lock would delay
    # its evaluations.
    for _ in range(_ATTEMPTS):
        done = await _plan(policies, tenant_id, definitions.policies)
        if done.taken:
            raise LoadError([_name_taken(definition) for definition in done.taken])
        async with policies.store.reading(tenant_id) as connection:
            stored = await guardrails.every_guardrail(connection, tenant_id)
        rules = guardrail_operations.plan_files(stored, definitions.guardrails)
        if not files.has_folder and (done.removed or rules.removed):
            raise LoadError([_folder_gone(tenant_id, len(done.removed), len(rules.removed))])
        if not (done.writes or rules):
            return done, rules
        if await policies.store.write(tenant_id, _work(policies, done, rules, stored, by)):
            return done, rules
    raise Unavailable("the policies change faster than they can be compared: retry later")


async def _plan(policies: Policies, tenant_id: str, definitions: list[Definition]) -> Plan:
    names = [definition.body["name"] for definition in definitions]
    taken: set[str] = set()
    async with policies.store.reading(tenant_id) as connection:
        rows = await policy_rows.of_files(connection, tenant_id)
        for some in chunks(names):
            taken |= await policy_rows.taken(connection, tenant_id, some)
    now, entropy = policies.clock.now(), policies.entropy
    # Drawn outside the thread, because the random buffer is not safe for two threads. One for each
    # definition, because the number of new policies is known only later.
    ids = iter([prefixed("pol_", entropy(16)) for _ in definitions])
    return await asyncio.to_thread(
        lambda: plan(definitions, map(StoredPolicy.from_row, rows), taken, now, ids.__next__)
    )


def _work(
    policies: Policies, done: Plan, rules: FilePlan, stored: list[StoredGuardrail], by: str
) -> Callable[[Transaction], Awaitable[bool]]:
    async def work(tx: Transaction) -> bool:
        """Write the planned changes. Return False, and write nothing, if the plan is outdated."""
        # Every replica watches the same files, so another one has often applied the same change.
        if not await _is_current(tx, done):
            return False
        if await guardrails.every_guardrail(tx.connection, tx.tenant_id) != stored:
            return False
        # Before the policies are published: they have to keep the guardrails of the same files.
        await guardrail_operations.apply_files(policies, tx, rules, by)
        # Removals come first, so that an added policy can reuse a removed one's name.
        for row in (*done.removed, *done.moved, *done.updated):
            await policy_rows.put(tx.connection, tx.tenant_id, row)
        await policy_rows.add(tx.connection, tx.tenant_id, done.added)
        await policy_change.publish(tx, done.roles)
        await require_new(tx, rules.rules)
        for change, rows in done.changes:
            changed = [policy_change.Changed(done.replaced.get(row.policy_id), row) for row in rows]
            await policy_change.record(policies, tx, changed, change, by)
        if done.removed:
            # In the transaction: policies of the API count too, and one may be created meanwhile.
            active = await policy_rows.any_active(tx.connection, tx.tenant_id)
            done.removes_last = not active
        return True

    return work


async def _is_current(tx: Transaction, done: Plan) -> bool:
    """Return whether the rows that the plan changes are still as they were when it was made."""
    for chunk in chunks(list(done.replaced)):
        for row in await policy_rows.by_ids(tx.connection, tx.tenant_id, chunk):
            if row != done.replaced[row.policy_id]:
                return False
    removed = {row.name for row in done.removed}
    for chunk in chunks([row.name for row in done.added]):
        if await policy_rows.taken(tx.connection, tx.tenant_id, chunk) - removed:
            return False
    return True


def _folder_gone(tenant_id: str, policies: int, guardrails: int) -> DefinitionFault:
    message = (
        f"the folder is gone, and with it {policies} policies and {guardrails} guardrails: put it "
        "back, or leave it empty to withdraw them"
    )
    return DefinitionFault(ascii(tenant_id)[1:-1], 0, "", message)


def _name_taken(definition: Definition) -> DefinitionFault:
    message = f"`{definition.body['name']}` is the name of another active policy"
    return DefinitionFault(definition.file, definition.line, "name", message)


def _guardrail_broken(
    error: GuardrailBroken, tenant_id: str, definitions: TenantDefinitions
) -> DefinitionFault:
    """Return the fault to report for a broken guardrail. It points to the policy that allows too
    much, or else to the guardrail."""
    message = f"{error.message}: {error.details}"
    if error.guardrail.kind == "never":
        for policy in definitions.policies:
            if policy.body["name"] == error.policy_name:
                return DefinitionFault(policy.file, policy.line, "", message)
    for rule in definitions.guardrails:
        if rule.guardrail == error.guardrail:
            return DefinitionFault(rule.file, rule.line, "", message)
    return DefinitionFault(tenant_id, 0, "", message)


def _answer(done: Plan) -> Reloaded:
    changes = {"added": done.added, "updated": done.updated, "removed": done.removed}
    names = {change: sorted(row.name for row in rows) for change, rows in changes.items()}
    unchanged, skipped = sorted(done.unchanged), sorted(done.skipped)
    return Reloaded("reloaded", **names, unchanged=unchanged, skipped=skipped, warnings=[])


async def unowned_folders(policies: Policies) -> list[UnownedFolder]:
    """Return the policy folders that belong to no tenant, each with the tenant whose name is most
    similar, and log them. The list is empty if there is no policy directory, or if it can't be
    read."""
    directory = policies.directory
    if directory is None:
        return []
    async with policies.store.reading_all_tenants() as connection:
        known = {each.tenant_id: each.name for each in await tenant_rows.known(connection)}
    try:
        for fault in await asyncio.to_thread(strays, directory):
            _log.warning("%s", fault)
        # In a thread, because each folder is compared with every tenant's name.
        found = await asyncio.to_thread(lambda: unowned(folders(directory), known))
    except LoadError as error:
        # Loading the files fails for the same reason and refuses the reload; this only warns.
        _log.error("the policy directory can't be read: %s", error)
        return []
    for each in found:
        _log.warning("%s", each)
    return found


ACTOR = "disk"
DEBOUNCE_MS = 300
STEP_MS = 50
POLL_SECONDS = 5
"""The seconds after which files are checked without a reported change, because a network mount
reports none."""
MAX_LOGGED_FAULTS = 20

Stamp = tuple[tuple[str, int, int, int], ...]
"""The state of a tenant's files, to notice changes: path, inode, size and modification time of
each."""


class PolicyDirectory:
    """Loads the policy directory, and reloads it when it changes. `_loaded` is the stamp of each
    tenant's files when they were last loaded, and `_faulty` are the tenants whose files could not
    be loaded then."""

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
        """Load every tenant's files. Tenants whose files have faults keep the policies they
        have."""
        await unowned_folders(self._policies)
        await self._load_changed(frozenset())

    async def watch(self) -> None:
        """Reload files whenever they change, until the service stops."""
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
        """Return the tenants whose folders contain these paths."""
        parts = (path.relative_to(self._directory).parts for path in paths)
        return frozenset(each[0] for each in parts if each)


def _stamps(directory: Path, tenant_ids: list[str]) -> dict[str, Stamp]:
    return {tenant_id: _stamp(directory, tenant_id) for tenant_id in tenant_ids}


def _stamp(directory: Path, tenant_id: str) -> Stamp:
    """Return the stamp of a tenant's files. It is empty if the folder is missing or can't be read;
    loading it then reports why."""
    try:
        paths, _ = files(directory, tenant_id)
        rules = guardrail_file(directory, tenant_id)
        paths += [] if rules is None else [rules]
        stats = [(path, path.stat()) for path in paths]
    except (LoadError, OSError):
        return ()
    return tuple((str(path), at.st_ino, at.st_size, at.st_mtime_ns) for path, at in stats)
