"""Fetches the keys of one issuer from the address that the operator configured, and caches them.

A failure keeps the last good set in use: a cluster's API server that is away must not stop the pods
that run in it.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from control_api.metrics.labels import KeySetFetch
from control_api.registry.enrolment.token import MAX_BYTES, PublicKey, UnusableKeySet, parse_key_set
from control_api.security.issuers import Issuer
from policies.ground.clock import Clock
from policies.ground.errors import Unavailable
from policies.ground.os_errors import worded
from policies.ground.process.cluster_tls import cluster_context
from policies.ground.process.outage_logger import OutageLogger

CONNECT_SECONDS = 3.0
TOTAL_SECONDS = 5.0


class FetchFailed(Exception):
    """the key set can't be fetched or read"""


async def fetch(issuer: Issuer) -> bytes:
    """The bytes of the issuer's key set. Raises `FetchFailed`."""
    if issuer.file is not None:
        return await asyncio.to_thread(_read, issuer.file)
    try:
        return await _get(issuer)
    except TimeoutError:
        raise FetchFailed(f"no answer within {TOTAL_SECONDS:g} s") from None
    except (ClientError, OSError) as error:
        raise FetchFailed(str(error) or type(error).__name__) from error


async def _get(issuer: Issuer) -> bytes:
    headers = {"Accept": "application/jwk-set+json, application/json", "User-Agent": "sluice"}
    if issuer.token_file is not None:
        # Read each time: the kubelet replaces the token before it expires.
        token = await asyncio.to_thread(_read, issuer.token_file)
        headers["Authorization"] = f"Bearer {token.decode('ascii', 'replace').strip()}"
    tls = cluster_context(cafile=str(issuer.ca)) if issuer.ca else True
    # The operator chose this address, private or not, so it needs no entry in
    # SLUICE_WEBHOOK_ALLOW. No redirect and no proxy from the environment: both lead elsewhere, and
    # the key set decides which agents a caller can be.
    async with (
        ClientSession(
            connector=TCPConnector(ssl=tls, force_close=True, limit=1),
            cookie_jar=DummyCookieJar(),
            trust_env=False,
            timeout=ClientTimeout(total=TOTAL_SECONDS, sock_connect=CONNECT_SECONDS),
        ) as session,
        session.get(issuer.keys, headers=headers, allow_redirects=False) as answer,
    ):
        if answer.status != 200:
            raise FetchFailed(f"it answered {answer.status}")
        raw = b""
        while chunk := await answer.content.readany():
            raw += chunk
            if len(raw) > MAX_BYTES:
                raise FetchFailed(f"it has more than {MAX_BYTES} bytes")
        return raw


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FetchFailed(f"`{path}` can't be read: {worded(error)}") from error
    if len(raw) > MAX_BYTES:
        raise FetchFailed(f"`{path}` has more than {MAX_BYTES} bytes")
    return raw


REFRESH_SECONDS = 300.0
"""How long a key that left the set may still verify tokens."""
UNKNOWN_SECONDS = 60.0
"""A `kid` that the set lacks causes a fetch at most this often: anyone may send any `kid`."""
RETRY_SECONDS = 10.0
FILE_SECONDS = 1.0
"""The same three, for a set in a file, which costs nothing to read."""
_log = logging.getLogger("sluice.enrolment")


class KeysUnavailable(Unavailable):
    """the issuer's keys have not been read yet; try again later"""


class IssuerKeys:
    """One issuer's keys. `count` is told the outcome of each fetch."""

    def __init__(
        self,
        issuer: Issuer,
        clock: Clock,
        count: Callable[[KeySetFetch], None],
        fetch_set: Callable[[Issuer], Awaitable[bytes]] = fetch,
    ) -> None:
        self._issuer = issuer
        self._monotonic = clock.monotonic
        self._count = count
        self._fetch = fetch_set
        self._keys: dict[str, PublicKey] = {}
        self._lock = asyncio.Lock()
        self._attempted = -math.inf
        self._failed = True
        self._outage = OutageLogger(
            _log,
            f"the keys of issuer `{issuer.issuer}` can't be read",
            f"the keys of issuer `{issuer.issuer}` are read again",
        )

    async def find(self, kid: str) -> PublicKey | None:
        """The key with this id. Raises `KeysUnavailable` if no set was ever read."""
        # `kid` is compared and nothing else: it is never part of a path, a URL or a statement.
        if kid not in self._keys or self._issuer.file is not None:
            async with self._lock:
                # Callers that waited for the lock find what the first of them fetched.
                if self._may_fetch(kid):
                    await self._refresh()
        if not self._keys:
            raise KeysUnavailable
        return self._keys.get(kid)

    async def run(self) -> None:
        """Runs forever: keys that left the set must stop verifying tokens."""
        while True:
            async with self._lock:
                await self._refresh()
            await asyncio.sleep(RETRY_SECONDS if self._failed else REFRESH_SECONDS)

    def _may_fetch(self, kid: str) -> bool:
        age = self._monotonic() - self._attempted
        if self._issuer.file is not None:
            return age >= FILE_SECONDS
        if kid in self._keys:
            return False
        return age >= (RETRY_SECONDS if self._failed else UNKNOWN_SECONDS)

    async def _refresh(self) -> None:
        self._attempted = self._monotonic()
        try:
            keys = parse_key_set(await self._fetch(self._issuer))
        except (FetchFailed, UnusableKeySet) as error:
            self._failed = True
            self._count(KeySetFetch.failed)
            self._outage.failing(error)
            return
        self._failed = False
        self._keys = keys
        self._count(KeySetFetch.fetched)
        self._outage.recovered()
