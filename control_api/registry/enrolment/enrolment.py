"""Enrols a sidecar by its pod's ServiceAccount token: rate, token, issuer, key, claims, agent.

Everything that a token is refused for is counted, and recorded in the audit trail of the issuer's
tenant, or of the default tenant if the issuer is unknown. Records are flood-limited: a stranger can
send tokens as fast as we answer.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from math import ceil

from control_api.log.append import Log
from control_api.metrics.labels import Enrolling
from control_api.metrics.metrics import EnrolmentMetrics
from control_api.registry.enrolment.buckets import Buckets
from control_api.registry.enrolment.issuer_keys import IssuerKeys, KeysUnavailable
from control_api.registry.enrolment.pods import ACTOR, Enrolled, PodRegistry, ProvenPod
from control_api.registry.enrolment.token import Pod, TokenRefused, read_token, verify
from control_api.security.issuers import DEFAULT_TENANT, Issuer
from control_api.store.store import Store
from policies.ground.clock import Clock
from policies.ground.errors import SluiceError, TooMany
from policies.trail.change import change_record

# A namespace of 500 pods may start at once, and a core verifies some thousands of tokens a second.
REQUESTS_PER_SECOND, REQUESTS_AT_ONCE = 500, 2000
# A pod whose agent waits for approval asks every few seconds.
POD_ASKS_PER_SECOND, POD_ASKS_AT_ONCE = 1.0, 30
# An enrolled one asks for keys every half hour. More often is a pod that crashes in a loop, or a
# copied token that someone tries to fill the log with.
POD_KEYS_PER_SECOND, POD_KEYS_AT_ONCE = 1 / 20, 10
RECORDS_PER_SECOND, RECORDS_AT_ONCE = 1 / 60, 5
"""For each tenant and reason: a flood of one kind must not hide a token of another."""
_UNKNOWN_ISSUER = "unknown"
_log = logging.getLogger("sluice.enrolment")


class EnrolmentOff(TokenRefused):
    """no issuer is configured"""

    def __init__(self) -> None:
        super().__init__(Enrolling.off, "no issuer is configured in SLUICE_ENROL_ISSUERS")


class TooOften(TooMany):
    """enrolments come too often"""

    def __init__(self, what: str, seconds: float) -> None:
        self.headers = {"Retry-After": str(max(1, ceil(seconds)))}
        super().__init__(f"{what} enrols too often; try again in {max(1, ceil(seconds))} s")


class Enrolments:
    """`enrol` is the whole operation. `loops` keep the issuers' keys current."""

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
        self._log = log
        self._registry = registry
        self._metrics = metrics
        self._new_id = new_id
        self._requests = Buckets(REQUESTS_PER_SECOND, REQUESTS_AT_ONCE)
        self._asking = Buckets(POD_ASKS_PER_SECOND, POD_ASKS_AT_ONCE)
        self._issuing = Buckets(POD_KEYS_PER_SECOND, POD_KEYS_AT_ONCE)
        self._records = Buckets(RECORDS_PER_SECOND, RECORDS_AT_ONCE)
        self._suppressed: dict[tuple[str, Enrolling], int] = {}
        self.loops = tuple(keys.run for keys in self._keys.values())

    async def enrol(self, token: str) -> Enrolled:
        """Raises `TokenRefused`, `TooOften`, `KeysUnavailable`, or `WriteFault`."""
        token_hash = hashlib.sha256(token.encode(errors="replace")).hexdigest()
        try:
            enrolled = await self._enrol(token, token_hash)
        except TokenRefused as refused:
            self._metrics.outcome(refused.reason)
            if self._issuers:
                await self._record(refused, token_hash)
            raise
        except TooOften:
            self._metrics.outcome(Enrolling.rate)
            raise
        except KeysUnavailable:
            self._metrics.outcome(Enrolling.unavailable)
            raise
        self._metrics.outcome(Enrolling.pending if enrolled.keys is None else Enrolling.enrolled)
        return enrolled

    async def _enrol(self, text: str, token_hash: str) -> Enrolled:
        if not self._issuers:
            raise EnrolmentOff
        # Before anything is parsed: the rest costs a signature, and perhaps a transaction.
        if wait := self._requests.wait("", self._clock.monotonic()):
            raise TooOften("the fleet", wait)
        pod = await self._verified(text)
        tenant_id = self._issuers[pod.issuer].tenant_id
        if wait := self._asking.wait(pod.uid, self._clock.monotonic()):
            raise TooOften("the pod", wait)
        return await self._registry.enrol(tenant_id, ProvenPod(pod, token_hash), self._admit)

    def _admit(self, pod: Pod) -> None:
        """Raises `TooOften` if the pod has got keys too often."""
        if wait := self._issuing.wait(pod.uid, self._clock.monotonic()):
            raise TooOften("the pod", wait)

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
        target = issuer.issuer if issuer is not None else _UNKNOWN_ISSUER
        record = change_record("enrolment.refused", target, ACTOR, detail, record_id=self._new_id())
        try:
            await self._log.append(tenant_id, record)
        except SluiceError as error:
            # The token stays refused. The metric and the line above still tell of it.
            _log.error("a refused enrolment can't be recorded: %s", error.message)
