"""Follows the file with the agent's key, so that a key which leaked, expired or was revoked is
replaced without a restart. Knows the file and who uses its key. Knows no request.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from policies.ground.keys import key_digest
from policies.ground.os_errors import worded
from policies.sets.policy_set import NoPolicySet
from sidecar.control.identity import ConfiguredIdentity
from sidecar.live_keys import EVALUATING_SCOPES, AgentIdentity, LiveKeys
from sidecar.platform.key_file import read_key
from sidecar.platform.state_logger import StateLogger
from sidecar.policy_cache.document_fetcher import DocumentFetcher, FetchFailed, MissingDocument
from sidecar.policy_cache.policy_store import CacheDamaged

log = logging.getLogger(__name__)

SECONDS = 1.0
"""The time between two looks at the file."""


class AgentKeyFile:
    """The file at `path`, which holds the key of `agent`. `identity` holds the key's document."""

    def __init__(
        self,
        path: Path,
        agent: AgentIdentity,
        identity: ConfiguredIdentity,
        keys: LiveKeys,
        fetcher: DocumentFetcher,
        monotonic: Callable[[], float],
    ) -> None:
        self._path = path
        self._agent = agent
        self._identity = identity
        self._keys = keys
        self._fetcher = fetcher
        self._stamp: tuple[int, ...] = ()
        self._digest = agent.digest
        self._state = StateLogger(
            log,
            "the previous key of the agent stays in use",
            "the agent's key is that of its file",
            monotonic,
        )

    async def run(self) -> None:
        """Never returns."""
        while True:
            await self.follow()
            await asyncio.sleep(SECONDS)

    async def follow(self) -> None:
        """Use the key that the file holds now."""
        try:
            self._read_if_changed()
            if self._digest != self._agent.digest:
                await self._replace()
        except (ValueError, FetchFailed) as error:
            self._state.failing(str(error))
        else:
            self._state.recovered()

    def _read_if_changed(self) -> None:
        """Raises `ValueError` for a file that can't be read, or holds no key."""
        try:
            status = self._path.stat()
        except OSError as error:
            raise ValueError(f"`{self._path}` can't be read: {worded(error)}") from error
        # The time alone isn't enough: a file may be replaced by an older one.
        stamp = status.st_mtime_ns, status.st_size, status.st_ino
        if stamp != self._stamp:
            # Stamped as it was before it is read: a change in between is read at the next look.
            self._digest, self._stamp = key_digest(read_key(self._path)), stamp

    async def _replace(self) -> None:
        """Raises `ValueError` for a key that may not evaluate while the former one may."""
        # A key that was created a moment ago may not be in the policy set yet, and one that was
        # mistyped never is. Neither is a reason to deny what the key in use allows.
        if not await self._may_evaluate() and self._agent.key() is not None:
            raise ValueError(
                f"the key in `{self._path}` is unknown, revoked or expired, or has another scope "
                "than `evaluate` or `admin`"
            )
        self._agent.digest = self._digest
        self._identity.hold_agent_key(self._digest)
        log.info("the agent's key is replaced by that in `%s`", self._path)

    async def _may_evaluate(self) -> bool:
        """Raises `FetchFailed` if that can't be known at the moment."""
        try:
            try:
                key = self._keys.find(self._digest)
            except MissingDocument as missing:
                await self._fetcher.fetch([missing.name])
                key = self._keys.find(self._digest)
        except (NoPolicySet, MissingDocument, CacheDamaged) as error:
            raise FetchFailed(str(error)) from error
        return key is not None and key.scope in EVALUATING_SCOPES
