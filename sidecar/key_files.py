"""Follows the files that hold the agent's key and the sidecar's own key, so that a key that leaked,
expired or was revoked is replaced without a restart. Knows the files and who uses their keys. Knows
no request."""

import asyncio
import logging
from abc import ABC, abstractmethod
from pathlib import Path

from policies.ground.errors import worded
from policies.ground.keys import key_digest
from policies.ground.process.outage_logger import RepeatingOutageLogger
from policies.sets.policy_set import NoPolicySet
from sidecar.control.identity import ConfiguredIdentity
from sidecar.live_keys import AgentIdentity, LiveKeys
from sidecar.platform.key_file import read_key
from sidecar.policy_cache.policy_store import CacheDamaged
from sidecar.policy_cache.policy_view import FetchFailed, MissingDocument, PolicyView

log = logging.getLogger(__name__)

_KEPT = "the one before stays in use until the file holds one that fits"

LOOK_SECONDS = 1.0
"""The seconds between two looks at a file."""


class _KeyFile(ABC):
    """The file at `path`, from which a key is taken into use whenever it changes. `whose` names the
    key in the log, for example "the agent's key"."""

    def __init__(self, path: Path, whose: str, key: bytes, policies: PolicyView) -> None:
        self._path = path
        self._whose = whose
        self._policies = policies
        self._stamp: tuple[int, ...] = ()
        self._key = ""
        self._digest = key
        self._state = RepeatingOutageLogger(
            log,
            f"{whose} is not replaced",
            f"{whose} is that of its file",
            policies.monotonic,
        )

    @property
    def problem(self) -> str | None:
        """The reason why the key in the file is not in use; None if it is in use."""
        return self._state.problem

    async def run(self) -> None:
        """Follow the file until cancelled."""
        while True:
            await self.follow()
            await asyncio.sleep(LOOK_SECONDS)

    async def follow(self) -> None:
        """Take the key that the file holds now into use. If that key is not accepted and the key in
        use still is, the key in use stays."""
        try:
            try:
                self._read_if_changed()
            except ValueError as error:
                # Of a key before that is refused itself, other lines say so.
                raise ValueError(f"{error}; {_KEPT}" if self._works() else str(error)) from error
            if self._digest != self._in_use():
                await self._replace()
        except FetchFailed as error:
            self._state.failing(str(error))
        except ValueError as error:
            # Another wrong key is logged at once: an operator who tries keys reads the log.
            self._state.failing(str(error), pause=0.0)
        else:
            # The file's key is in use, even if it does not fit: `_replace` has told that.
            if self._works():
                self._state.recovered()
            else:
                self._state.superseded()

    def _read_if_changed(self) -> None:
        """Read the file if it has changed. Raises `ValueError` if the file can't be read or holds
        no key."""
        try:
            status = self._path.stat()
        except OSError as error:
            raise ValueError(f"`{self._path}` can't be read: {worded(error)}") from error
        # The time alone isn't enough: a file may be replaced by an older one.
        stamp = status.st_mtime_ns, status.st_size, status.st_ino
        if stamp != self._stamp:
            # Stamped as it was before it is read: a change in between is read at the next look.
            self._key, self._stamp = read_key(self._path), stamp
            self._digest = key_digest(self._key)

    async def _replace(self) -> None:
        """Take the file's key into use. Raises `ValueError` if it is not accepted while the key in
        use still is."""
        # A key that was created a moment ago may not be in the policy set yet, and one that was
        # mistyped, or is another's, never fits. Neither is a reason to lose what works.
        fault = await self._fault_of_new()
        if fault is not None and self._works():
            raise ValueError(f"the key in `{self._path}` {fault}; {_KEPT}")
        self._use()
        if fault is None:
            log.info("%s is replaced by that in `%s`", self._whose, self._path)
        else:
            log.error(
                "%s is replaced by that in `%s`, which %s: write one that fits into that file",
                self._whose,
                self._path,
                fault,
            )

    async def _fault_of_new(self) -> str | None:
        """Return the reason why the file's key is not accepted; None if it is. Raises `FetchFailed`
        if the policy set can't tell yet."""
        try:
            try:
                return self._fault(self._digest)
            except MissingDocument as missing:
                await self._policies.document_fetcher.fetch([missing.name])
                return self._fault(self._digest)
        except (NoPolicySet, MissingDocument, CacheDamaged) as error:
            raise FetchFailed(str(error)) from error

    def _works(self) -> bool:
        """Return whether the key in use is accepted; False if the local policy set can't tell
        now."""
        try:
            return self._fault(self._in_use()) is None
        except (NoPolicySet, MissingDocument, CacheDamaged):
            return False

    @abstractmethod
    def _in_use(self) -> bytes:
        """Return the digest of the key in use."""

    @abstractmethod
    def _fault(self, digest: bytes) -> str | None:
        """Return the reason why the key with this digest can't take the place of the key in use;
        None if it can. Raises the errors of `LiveKeys.find`."""

    @abstractmethod
    def _use(self) -> None:
        """Use the file's key from now on."""


class AgentKeyFile(_KeyFile):
    """The file with the key of `agent`. `identity` lists the documents that every decision needs,
    among them this key's."""

    def __init__(
        self,
        path: Path,
        agent: AgentIdentity,
        identity: ConfiguredIdentity,
        policies: PolicyView,
    ) -> None:
        super().__init__(path, "the agent's key", agent.digest, policies)
        self._agent = agent
        self._identity = identity

    async def follow(self) -> None:
        await super().follow()
        # Anyone may read what `/health/ready` says, so it names the setting and not the path.
        fault = self.problem
        self._agent.file_fault = fault and fault.replace(str(self._path), "agent.key_file")

    def _in_use(self) -> bytes:
        return self._agent.digest

    def _fault(self, digest: bytes) -> str | None:
        fault = self._agent.fault_of(digest)
        return None if fault is None else fault.why

    def _use(self) -> None:
        self._agent.digest = self._digest
        self._identity.hold_agent_key(self._digest)


class OwnKeyFile(_KeyFile):
    """The file with the sidecar's own key, which `identity` presents to the control API."""

    def __init__(
        self,
        path: Path,
        identity: ConfiguredIdentity,
        keys: LiveKeys,
        policies: PolicyView,
        sidecar_id: str,
    ) -> None:
        super().__init__(path, "the sidecar's own key", identity.own_digest, policies)
        self._identity = identity
        self._keys = keys
        self._sidecar_id = sidecar_id

    def _in_use(self) -> bytes:
        return self._identity.own_digest

    async def _fault_of_new(self) -> str | None:
        # While the policy set is stale, as after a refusal of the key in use, nothing can be looked
        # up, and there is nothing to lose.
        return None if self._policies.stale() else await super()._fault_of_new()

    def _fault(self, digest: bytes) -> str | None:
        key = self._keys.find(digest)
        if key is None:
            return "is unknown, revoked or expired"
        if key.scope != "sidecar":
            return f"has the scope `{key.scope}`, not `sidecar`"
        if not key.may_speak_as_sidecar(self._sidecar_id):
            return f"may not speak as sidecar `{self._sidecar_id}`"
        agent_id = self._identity.agent_id
        if agent_id is not None and not key.may_speak_for_agent(agent_id):
            return f"may not speak for agent `{agent_id}`"
        return None

    def _works(self) -> bool:
        return not self._policies.stale()

    def _use(self) -> None:
        self._identity.hold_own_key(self._key)
