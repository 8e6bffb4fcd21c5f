"""Answers the reviews that the API server sends: each one gets a log line, a metric and perhaps a
Kubernetes Event.

A pod that is being created has no uid yet, and often no name. The Event is therefore about the
controller that creates it, such as a ReplicaSet or a Job; only for a pod without a controller is it
about the pod.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from aiohttp import web

from deploy.kubernetes.admission.kubernetes import Event, EventReason
from deploy.kubernetes.admission.metrics import WebhookMetrics
from deploy.kubernetes.admission.review import Review, answer, parse
from deploy.kubernetes.admission.vocabulary import Outcome, SkipReason, Verdict
from policies.ground.errors import (
    Malformed,
    MethodNotAllowed,
    NotFound,
    SluiceError,
    TooLarge,
    Unavailable,
)
from policies.ground.process.json_logging import REQUEST_ID
from policies.ground.process.small_server import HEADERS, error_response

_FIELDS = ("apiVersion", "kind", "name", "uid")
MAX_FIELD = 253
_REASONS = {
    Outcome.injected: EventReason.injected,
    Outcome.skipped: EventReason.skipped,
}


def event_of(review: Review, verdict: Verdict) -> Event | None:
    """Return the Event to send for a verdict; None if its outcome calls for none, or the review is
    a dry run."""
    reason = _REASONS.get(verdict.outcome)
    if reason is None or review.pod is None or review.dry_run:
        return None
    note = verdict.message or (
        "the Sluice sidecar was added"
        if reason is EventReason.injected
        else f"the Sluice sidecar was not added: {_words(verdict.skip_reason)}"
    )
    return Event(review.namespace, _owner(review.pod), reason, note)


def _owner(pod: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return a reference to the controller that creates the pod; to the pod itself if it has no
    controller."""
    found = pod.get("metadata")
    metadata = found if isinstance(found, dict) else {}
    owners = metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else []:
        if isinstance(owner, dict) and owner.get("controller") is True:
            # The pod's author wrote this. The API server checks the form; the Event stays in the
            # pod's namespace in any case.
            return tuple((name, str(owner.get(name, ""))[:MAX_FIELD]) for name in _FIELDS)
    name = str(metadata.get("name") or metadata.get("generateName") or "")[:MAX_FIELD]
    return (("apiVersion", "v1"), ("kind", "Pod"), ("name", name))


def _words(reason: SkipReason) -> str:
    return reason.value.replace("_", " ")


MAX_BODY = 3 * 1024 * 1024
"""The limit on a body, in bytes. The API server accepts no larger object."""
BODY_SECONDS = 4.0
"""The seconds that a body may take to arrive. The API server gives up after 5 seconds."""
MAX_HELD = 32 * 1024 * 1024
"""The most bytes of large bodies that are in memory at the same time, so that many large reviews
can't use up the memory."""
SMALL = 128 * 1024
"""The size in bytes up to which a body is not counted towards `MAX_HELD`: the number of connections
limits these bodies."""


class BodyReader:
    """Reads the bodies of requests, and limits the memory that large bodies use together."""

    def __init__(self) -> None:
        self._held = 0

    def reserve(self, request: web.BaseRequest) -> int:
        """Reserve memory for a request's body, and return the number of bytes, which the caller
        must release. Raises `Malformed`, `TooLarge` or `Unavailable` before anything is read."""
        length = request.content_length
        if request.headers.get("Content-Encoding", "identity") != "identity":
            # Nothing that the API server sends is compressed, and a bomb would be.
            raise Malformed("the body is compressed, which is not supported")
        if length is None:
            length = MAX_BODY  # chunked: it may become this long
        if length > MAX_BODY:
            raise TooLarge(f"the body has {length} bytes, over the limit of {MAX_BODY}")
        if length <= SMALL:
            return 0
        if self._held + length > MAX_HELD:
            raise Unavailable("too many large reviews at once")
        self._held += length
        return length

    def release(self, reserved: int) -> None:
        self._held -= reserved

    async def read(self, request: web.BaseRequest) -> bytes:
        """Read the whole body. Raises `Malformed` if it is late or cut short, and `TooLarge` if it
        is too large."""
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await _whole(request)
        except TimeoutError:
            raise Malformed(f"the body did not arrive within {BODY_SECONDS:.0f} s") from None
        except (ConnectionError, web.RequestPayloadError):
            raise Malformed("the body is cut short") from None


async def _whole(request: web.BaseRequest) -> bytes:
    pieces: list[bytes] = []
    length = 0
    async for piece in request.content.iter_any():
        length += len(piece)
        if length > MAX_BODY:
            raise TooLarge(f"the body is over the limit of {MAX_BODY} bytes")
        pieces.append(piece)
    return b"".join(pieces) if len(pieces) != 1 else pieces[0]


_UID = re.compile(r"[0-9a-f-]{36}\Z")
_log = logging.getLogger("sluice.webhook")


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """The facts about a pod's namespace that the path of a request states. A review itself does not
    hold the namespace's labels, so the webhook configuration selects a path by these labels."""

    optional: bool = False
    """True if the namespace's pods may opt out of the sidecar."""
    restricted: bool = False
    """True if the namespace enforces the Pod Security Standard `restricted`."""


PATHS: Mapping[str, NamespaceFacts] = MappingProxyType(
    {
        "/inject": NamespaceFacts(),
        "/inject/enabled": NamespaceFacts(),
        "/inject/optional": NamespaceFacts(optional=True),
        "/inject/enabled/restricted": NamespaceFacts(restricted=True),
        "/inject/optional/restricted": NamespaceFacts(optional=True, restricted=True),
    }
)


class Inject(Protocol):
    """A function that decides about a pod that is being created. It is pure, and is called in a
    thread for large pods."""

    def __call__(self, review: Review, facts: NamespaceFacts) -> Verdict: ...


class Report(Protocol):
    """A function that tells a pod's owner the outcome of its review. It returns at once."""

    def __call__(self, review: Review, verdict: Verdict) -> None: ...


class Reviews:
    """Handles the requests at the HTTPS port."""

    def __init__(
        self,
        inject: Inject,
        report: Report,
        metrics: WebhookMetrics,
        monotonic: Callable[[], float],
    ) -> None:
        self._inject = inject
        self._report = report
        self._metrics = metrics
        self._monotonic = monotonic
        self._bodies = BodyReader()
        # One thread: large bodies wait for each other, while small ones are answered meanwhile.
        self._large = ThreadPoolExecutor(1, "large-review")

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        """Answer a request. Every error becomes a response, a metric and a log line."""
        started = self._monotonic()
        REQUEST_ID.set(None)
        outcome, skip_reason = Outcome.failed, SkipReason.none
        try:
            review, verdict, body = await self._judged(request)
            outcome, skip_reason = verdict.outcome, verdict.skip_reason
            response = web.Response(body=body, headers=HEADERS)
            _log_review(review, verdict, self._monotonic() - started)
            if not review.dry_run:
                self._report(review, verdict)
        except SluiceError as error:
            outcome = Outcome.malformed if error.status < 500 else Outcome.failed
            _log.warning("review refused with %d: %s", error.status, error.message)
            response = error_response(error)
        except Exception:  # noqa: BLE001  # the only place where a bug becomes a 500
            _log.exception("review failed")
            # Not an admitting answer: the API server then goes by `failurePolicy`, and counts it.
            response = error_response(SluiceError("internal error"))
        self._metrics.responses(outcome, skip_reason).inc()
        self._metrics.seconds.observe(self._monotonic() - started)
        return response

    def close(self) -> None:
        self._large.shutdown(wait=False, cancel_futures=True)

    async def _judged(self, request: web.BaseRequest) -> tuple[Review, Verdict, bytes]:
        # Only the path: the API server adds `?timeout=5s`.
        facts = PATHS.get(request.raw_path.partition("?")[0])
        if facts is None:
            raise NotFound(f"there is no such path; reviews go to {', '.join(PATHS)}")
        if request.method != "POST":
            raise MethodNotAllowed("reviews are sent by POST")
        content_type = request.headers.get("Content-Type")
        reserved = self._bodies.reserve(request)
        try:
            raw = await self._bodies.read(request)
            if len(raw) <= SMALL:
                return self._judge(raw, content_type, facts)
            # Reading 3 MB of JSON takes some 100 ms, which must not hold up the other reviews.
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._large, self._judge, raw, content_type, facts)
        finally:
            self._bodies.release(reserved)

    def _judge(
        self, raw: bytes, content_type: str | None, facts: NamespaceFacts
    ) -> tuple[Review, Verdict, bytes]:
        review = parse(raw, content_type)
        if review.pod is not None:
            verdict = self._inject(review, facts)
        else:
            reason = SkipReason.not_created if review.is_pod else SkipReason.not_a_pod
            verdict = Verdict(Outcome.skipped, skip_reason=reason)
        return review, verdict, answer(review.uid, verdict)


def _log_review(review: Review, verdict: Verdict, seconds: float) -> None:
    if _UID.match(review.uid):
        REQUEST_ID.set(review.uid)
    reason = verdict.message or (
        verdict.skip_reason.value if verdict.skip_reason is not SkipReason.none else ""
    )
    _log.info(
        "pod `%s` %s%s in %.1f ms%s, created by `%s`",
        review.pod_name,
        verdict.outcome.value,
        " (dry run)" if review.dry_run else "",
        seconds * 1000,
        f": {reason}" if reason else "",
        review.user[:128],
    )
