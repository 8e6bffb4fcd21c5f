"""Enrols a sidecar: verifies its pod's ServiceAccount token and issues API keys. The checks, in
order: rate, token, issuer, key, claims, agent.

Every refusal is counted, and recorded in the log of the issuer's tenant, or of the default tenant
if the issuer is unknown. The number of records is limited, since a stranger can send tokens at any
rate.

If an issuer's keys can't be fetched, the last good set stays in use: an unreachable API server of a
cluster must not stop the pods that run in it.
"""

import asyncio
import hashlib
import logging
import math
from collections.abc import Awaitable, Callable, Hashable, Sequence
from itertools import islice
from math import ceil
from pathlib import Path

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from control_api.log.append import Log
from control_api.metrics.labels import Enrolling, KeySetFetch
from control_api.metrics.metrics import EnrolmentMetrics
from control_api.registry.enrolment.pods import ACTOR, Enrolled, PodRegistry, ProvenPod
from control_api.registry.enrolment.token import (
    MAX_BYTES,
    Pod,
    PublicKey,
    TokenRefused,
    UnusableKeySet,
    parse_key_set,
    read_token,
    verify,
)
from control_api.security.issuers import DEFAULT_TENANT, Issuer
from control_api.store.store import Store
from policies.ground.clock import Clock
from policies.ground.errors import SluiceError, TooMany, Unavailable, worded
from policies.ground.process.outage_logger import OutageLogger
from policies.ground.process.tls_files import cluster_context
from policies.trail.change import change_record

MAX_BUCKETS = 65_536


class Buckets:
    """Rate limits, one token bucket for each name. Each bucket admits `burst` requests at once, and
    `rate` per second after that."""

    def __init__(self, rate: float, burst: int) -> None:
        self._interval = 1 / rate
        self._burst_seconds = burst / rate
        # A bucket is one number, the time at which it is full again. A missing one is full.
        self._full_at: dict[Hashable, float] = {}

    def wait(self, name: Hashable, now: float) -> float:
        """Take a token from the bucket and return 0, or return the seconds until it has one."""
        # Popped and inserted again, so the dictionary stays in order of use.
        full_at = max(self._full_at.pop(name, now), now)
        wait = full_at + self._interval - now - self._burst_seconds
        admitted = wait <= 0
        self._full_at[name] = full_at + self._interval if admitted else full_at
        # Two, because a call adds at most one: full buckets go without a sweep.
        for each in tuple(islice(self._full_at, 2)):
            if self._full_at[each] <= now or len(self._full_at) > MAX_BUCKETS:
                del self._full_at[each]
        return 0.0 if admitted else wait

    def due(self, name: Hashable, now: float) -> float:
        """Return the seconds until the bucket has a token, or 0 if it has one now. This takes no
        token."""
        full_at = max(self._full_at.get(name, now), now)
        return max(0.0, full_at + self._interval - now - self._burst_seconds)

    def __len__(self) -> int:
        return len(self._full_at)


CONNECT_SECONDS = 3.0
TOTAL_SECONDS = 5.0


class FetchFailed(Exception):
    """the key set can't be fetched or read"""


async def fetch_keys(issuer: Issuer) -> bytes:
    """Fetch or read the issuer's key set, and return its bytes. Raise `FetchFailed` if that
    fails."""
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
"""The seconds between two fetches of a key set, for which a key that was removed from it may still
verify tokens."""
UNKNOWN_SECONDS = 60.0
"""The least seconds between two fetches that are caused by an unknown `kid`: anyone may send any
`kid`."""
RETRY_SECONDS = 10.0
FILE_SECONDS = 1.0
"""The least seconds between two reads of a key set in a file. It replaces the three above, because
a file costs nothing to read."""
_log = logging.getLogger("sluice.enrolment")


class KeysUnavailable(Unavailable):
    """the issuer's keys have not been read yet; try again later"""


class IssuerKeys:
    """One issuer's current public keys. `count` is called with the outcome of each fetch."""

    def __init__(
        self,
        issuer: Issuer,
        clock: Clock,
        count: Callable[[KeySetFetch], None],
        fetch_set: Callable[[Issuer], Awaitable[bytes]] = fetch_keys,
    ) -> None:
        self._issuer, self._monotonic = issuer, clock.monotonic
        self._count, self._fetch = count, fetch_set
        self._keys: dict[str, PublicKey] = {}
        self._lock = asyncio.Lock()
        self._attempted, self._failed = -math.inf, True
        self._outage = OutageLogger(
            _log,
            f"the keys of issuer `{issuer.issuer}` can't be read",
            f"the keys of issuer `{issuer.issuer}` are read again",
        )

    async def find(self, kid: str) -> PublicKey | None:
        """Return the public key with this `kid`, or None if the set has none. Fetch the set first
        if that may help. Raise `KeysUnavailable` if no set was ever read."""
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
        """Fetch the key set again and again, forever: a key that was removed from it must stop
        verifying tokens."""
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


# A namespace of 500 pods may start at once, and a core verifies some thousands of tokens a second.
REQUESTS_PER_SECOND, REQUESTS_AT_ONCE = 500, 2000
# A pod whose agent waits for approval asks every few seconds.
POD_ASKS_PER_SECOND, POD_ASKS_AT_ONCE = 1.0, 30
# An enrolled one asks for keys every half hour. More often is a pod that crashes in a loop, or a
# copied token that someone tries to fill the log with.
POD_KEYS_PER_SECOND, POD_KEYS_AT_ONCE = 1 / 20, 10
RECORDS_PER_SECOND, RECORDS_AT_ONCE = 1 / 60, 5
"""The rate limit of recorded refusals, for each tenant and reason: a flood of refusals for one
reason must not hide a refusal for another."""


class TooOften(TooMany):
    """enrolments come too often"""

    def __init__(self, what: str, seconds: float) -> None:
        self.headers = {"Retry-After": str(max(1, ceil(seconds)))}
        super().__init__(f"{what} enrols too often; try again in {max(1, ceil(seconds))} s")


class Enrolments:
    """Enrols sidecars: `enrol` handles a request, and `loops` keep the issuers' keys current."""

    def __init__(
        self,
        issuers: Sequence[Issuer],
        store: Store,
        log: Log,
        registry: PodRegistry,
        metrics: EnrolmentMetrics,
        new_id: Callable[[], str],
    ) -> None:
        self._issuers = {issuer.issuer: issuer for issuer in issuers}
        self._keys = {
            issuer.issuer: IssuerKeys(issuer, store.clock, metrics.fetched) for issuer in issuers
        }
        self._clock: Clock = store.clock
        self._log, self._registry, self._metrics = log, registry, metrics
        self._new_id = new_id
        self._requests = Buckets(REQUESTS_PER_SECOND, REQUESTS_AT_ONCE)
        self._asking = Buckets(POD_ASKS_PER_SECOND, POD_ASKS_AT_ONCE)
        self._issuing = Buckets(POD_KEYS_PER_SECOND, POD_KEYS_AT_ONCE)
        self._records = Buckets(RECORDS_PER_SECOND, RECORDS_AT_ONCE)
        self._suppressed: dict[tuple[str, Enrolling], int] = {}
        self.loops = tuple(keys.run for keys in self._keys.values())

    async def enrol(self, token: str) -> Enrolled:
        """Verify the token and enrol its pod. Raise `TokenRefused`, `TooOften`, `KeysUnavailable`,
        or `WriteFault` if the database fails."""
        token_hash = hashlib.sha256(token.encode(errors="replace")).hexdigest()
        try:
            enrolled = await self._enrol(token, token_hash)
        except TokenRefused as refused:
            self._metrics.outcome(refused.reason)
            if self._issuers:
                await self._record(refused, token_hash)
            raise
        except (TooOften, KeysUnavailable) as error:
            often = isinstance(error, TooOften)
            self._metrics.outcome(Enrolling.rate if often else Enrolling.unavailable)
            raise
        self._metrics.outcome(Enrolling.pending if enrolled.keys is None else Enrolling.enrolled)
        return enrolled

    async def _enrol(self, text: str, token_hash: str) -> Enrolled:
        if not self._issuers:
            raise TokenRefused(Enrolling.off, "no issuer is configured in SLUICE_ENROL_ISSUERS")
        # Before anything is parsed: the rest costs a signature, and perhaps a transaction.
        self._take(self._requests, "", "the fleet")
        pod = await self._verified(text)
        tenant_id = self._issuers[pod.issuer].tenant_id
        self._take(self._asking, pod.uid, "the pod")
        proven = ProvenPod(pod, token_hash)
        return await self._registry.enrol(
            tenant_id, proven, lambda pod: self._take(self._issuing, pod.uid, "the pod")
        )

    def _take(self, buckets: Buckets, name: str, what: str) -> None:
        """Take a token from the bucket `name`. Raise `TooOften` if the bucket is empty."""
        if wait := buckets.wait(name, self._clock.monotonic()):
            raise TooOften(what, wait)

    async def _verified(self, text: str) -> Pod:
        token = read_token(text)
        keys = self._keys.get(token.issuer)
        if keys is None:
            raise TokenRefused(Enrolling.issuer, "its issuer is not configured")
        try:
            key = await keys.find(token.kid)
            if key is None:
                raise TokenRefused(Enrolling.key, "its `kid` names no key of its issuer")
            return verify(token, key, self._clock.now())
        except TokenRefused as refused:
            refused.issuer = token.issuer
            raise

    async def _record(self, refused: TokenRefused, token_hash: str) -> None:
        issuer = self._issuers.get(refused.issuer or "")
        tenant_id = DEFAULT_TENANT if issuer is None else issuer.tenant_id
        kind = (tenant_id, refused.reason)
        if self._records.wait(kind, self._clock.monotonic()):
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return
        detail = {
            "reason": str(refused.reason),
            "why": refused.why,
            "token_sha256": token_hash,
            # How many of the same kind have come since the last record.
            "suppressed": self._suppressed.pop(kind, 0),
            **(refused.pod.detail() if refused.pod is not None else {}),
        }
        # Never the token: until it expires it is as good as a key.
        _log.warning("enrolment refused (%s): %s", refused.reason, refused.why)
        target = issuer.issuer if issuer is not None else "unknown"
        record = change_record("enrolment.refused", target, ACTOR, detail, record_id=self._new_id())
        try:
            await self._log.append(tenant_id, record)
        except SluiceError as error:
            # The token stays refused. The metric and the line above still tell of it.
            _log.error("a refused enrolment can't be recorded: %s", error.message)
