"""Enrols this sidecar with the pod's token (`POST /v1/sidecars/enrol`), and renews its keys, which
are held in memory and nowhere else. The states:

    no keys, not approved   asks again every few seconds; everything is denied meanwhile
    keys                    renews them at half of their life, and earlier if the control API
                            refuses them or the agent's document changes
    renewal fails           the keys stay in use until they expire; then everything is denied
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from policies.definitions.model import Key
from policies.ground.canonical import micros
from policies.ground.clock import Clock
from policies.ground.errors import worded
from policies.ground.keys import well_formed
from policies.ground.process.outage_logger import RepeatingOutageLogger
from policies.sets.policy_set import agent_name, enrolment_name
from sidecar.control.client import ControlClient, ControlUnavailable
from sidecar.control.identity import NOT_APPROVED, NOT_ENROLLED, EnrolledIdentity, Enrolment
from sidecar.platform.backoff import Backoff

log = logging.getLogger(__name__)

PATH = "/v1/sidecars/enrol"
ANSWER_SECONDS = 10.0
MAX_TOKEN = 8192
MAX_LIFETIME = 86_400
FIRST_PAUSE, MAX_PAUSE = 0.5, 10.0
PENDING_PAUSE = 3.0
"""The most seconds between two requests that ask whether the agent has been approved."""
LEAST_PAUSE = 1.0
"""The minimum seconds between two enrolments, whatever causes them."""
_FINAL = {"agent": NOT_APPROVED, "tenant": NOT_ENROLLED}
"""The refusals after which the held keys are forgotten, because the control API has ended them: by
the `details` of its error, the policy name of the denials that follow. Any other refusal may be due
to this pod's token."""


class Unusable(Exception):
    """the token can't be read, or the answer makes no sense"""


class Enroller:
    """The loop that enrols the sidecar and renews its keys. `enrolments` counts the attempts that
    brought keys, `failures` those that brought none. `prepare` is awaited once there are new
    keys."""

    def __init__(
        self,
        control: ControlClient,
        identity: EnrolledIdentity,
        token_file: Path,
        clock: Clock,
        prepare: Callable[[], Awaitable[None]],
    ) -> None:
        self.enrolments = 0
        self.failures = 0
        self._control = control
        self._identity = identity
        self._token_file = token_file
        self._monotonic = clock.monotonic
        self._prepare = prepare
        self._backoff = Backoff(FIRST_PAUSE, MAX_PAUSE)
        self._wanted = asyncio.Event()
        self.wake = self._wanted.set
        """Makes the loop enrol soon, because the keys may no longer be valid."""
        back = "the sidecar is enrolled"
        self._outage = RepeatingOutageLogger(log, "enrolling", back, clock.monotonic)
        self._refused: str | None = None
        identity.key.on_refused = self.wake

    def changed(self, names: Iterable[str] | None) -> None:
        """Enrol soon if these documents of the policy set are about the sidecar's own agent. None
        means that any document may have changed."""
        answer = self._identity.answer
        if answer is not None and names is not None:
            own = enrolment_name(answer.agent_id), agent_name(answer.agent_id)
            if set(own).isdisjoint(names):
                return
        self.wake()

    async def run(self) -> None:
        """Enrol and renew the keys, until cancelled."""
        while True:
            # Cleared before the step: a change during the step may be newer than its answer.
            self._wanted.clear()
            pause = await self.step()
            failed = self._outage.ongoing
            # A key that expires in between has to be noticed when it does.
            if (left := self._identity.seconds_left) > 0:
                pause = min(pause, left)
            await self._sleep(pause, wakeable=not failed)
            self.forget_expired()

    async def step(self) -> float:
        """Try to enrol once. Returns the seconds to wait before the next attempt."""
        sent = self._monotonic()
        try:
            body = orjson.dumps({"token": await asyncio.to_thread(_read_token, self._token_file)})
            raw = await self._control.post(PATH, body, seconds=ANSWER_SECONDS, with_key=False)
            answer = _parse(raw, sent)
        except (ControlUnavailable, Unusable) as error:
            return self._failed(error)
        self._backoff.reset()
        self._outage.recovered()
        self._refused = None
        before = self._identity.answer
        self._identity.accept(answer)
        if answer.until is None:
            if before is None or before.status != answer.status or before.until is not None:
                log.warning("%s", (self._identity.problem or ("", ""))[1])
            return _spread(PENDING_PAUSE)
        self.enrolments += 1
        if before is None or before.generation != answer.generation:
            log.info("enrolled as agent `%s`, role `%s`", answer.agent_id, answer.agent_role)
        await self._prepare()
        return _spread((answer.until - sent) / 2)

    def _failed(self, error: Exception) -> float:
        self.failures += 1
        reason = _reason(error)
        # A refusal's text has the seconds by which a token is late; another number is no new
        # outage.
        self._outage.failing(str(error) if reason is None else f"refused for its `{reason}`")
        if reason is not None and reason != self._refused:
            log.error("%s", error)
        self._refused = reason
        if reason in _FINAL:
            self._identity.withdraw(_FINAL[reason], str(error))
        elif self._identity.answer is None or self._identity.answer.until is None:
            # There are no keys to keep; say why.
            self._identity.withdraw(NOT_ENROLLED, f"waiting to enrol: {error}")
        pause = self._backoff.next_pause()
        after = error.after if isinstance(error, ControlUnavailable) else None
        return max(pause, after or 0.0)

    def forget_expired(self) -> None:
        identity = self._identity
        if identity.problem is None and identity.seconds_left <= 0:
            cause = self._outage.problem or "it was not renewed in time"
            log.error("the enrolment has expired, and everything is denied: %s", cause)
            identity.withdraw(NOT_ENROLLED, f"the enrolment has expired: {cause}")

    async def _sleep(self, seconds: float, *, wakeable: bool) -> None:
        """Sleep for `seconds`, or until `wake` is called if `wakeable`. After a failure `wake` is
        ignored: every refused request would otherwise cause another attempt."""
        await asyncio.sleep(min(seconds, LEAST_PAUSE))
        if seconds <= LEAST_PAUSE:
            return
        if not wakeable:
            await asyncio.sleep(seconds - LEAST_PAUSE)
            return
        with suppress(TimeoutError):  # the renewal is due
            async with asyncio.timeout(seconds - LEAST_PAUSE):
                await self._wanted.wait()


def _read_token(path: Path) -> str:
    # Read each time: the kubelet replaces the file well before the token expires.
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_TOKEN + 1)
    except OSError as error:
        raise Unusable(f"`{path}` can't be read: {worded(error)}") from error
    token = raw.strip()
    if not token or len(token) > MAX_TOKEN or not token.isascii():
        raise Unusable(f"`{path}` does not hold a token")
    return token.decode("ascii")


def _parse(answer: dict[str, Any], sent: float) -> Enrolment:
    """Return the enrolment in an answer to a request that was sent at `sent`. The keys' lifetime
    counts from `sent`: the answer was made later, so the keys are valid for at least as long."""
    try:
        members = ("workload", "agent_id", "agent_role", "status")
        workload, agent_id, role, status = (_text(answer[each]) for each in members)
        waiting = Enrolment(workload, agent_id, role, status)
        if answer["sidecar_key"] is None:
            return waiting
        lifetime, expires_at = answer["expires_in"], _text(answer["expires_at"])
        if type(lifetime) is not int or not 0 < lifetime <= MAX_LIFETIME:
            raise ValueError("the keys have no usable lifetime")
        _key(answer["agent_key"])
        key_id = _text(answer["agent_key_id"])
        return replace(
            waiting,
            generation=_text(answer["enrolment"]),
            sidecar_key=_key(answer["sidecar_key"]),
            # The secret itself is dropped: this sidecar is the only one that speaks with it, and
            # presents it to no one.
            agent_key=Key(key_id, "evaluate", waiting.agent_id, (), micros(expires_at)),
            until=sent + lifetime,
            expires_at=expires_at,
        )
    except (KeyError, TypeError, ValueError) as error:
        # Never the answer itself: it may hold keys.
        raise Unusable(f"the answer is not an enrolment: {type(error).__name__}") from None


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError("not a text")
    return value


def _key(value: object) -> str:
    if not isinstance(value, str) or not well_formed(value):
        raise ValueError("not a key")
    return value


def _reason(error: Exception) -> str | None:
    """Return the control API's reason for refusing the token; None for any other error."""
    if isinstance(error, ControlUnavailable) and isinstance(error.answer, dict):
        details = error.answer.get("details")
        return details if error.status == 403 and isinstance(details, str) else None
    return None


def _spread(seconds: float) -> float:
    """Return a random time a little below `seconds`: pods that started together must not renew
    together forever."""
    return seconds * random.uniform(0.8, 1.0)  # noqa: S311  # spreads load, guards nothing
