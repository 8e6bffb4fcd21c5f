"""Answers the API server's reviews: one review, one log line, one metric, perhaps one Event.

Knows HTTP and the order of the steps. What is injected comes from the function it is given.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from aiohttp import web

from control_api.admission.metrics import WebhookMetrics
from control_api.admission.review import Review, answer, parse
from control_api.admission.server.body import SMALL, BodyReader
from control_api.admission.verdict import Outcome, SkipReason, Verdict
from control_api.json_logging import REQUEST_ID
from control_api.small_server.answers import HEADERS, error_response
from policies.ground.errors import MethodNotAllowed, NotFound, SluiceError

_UID = re.compile(r"[0-9a-f-]{36}\Z")
_log = logging.getLogger("sluice.webhook")


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """What the selectors say of a namespace, by choosing the path."""

    optional: bool = False
    """Its pods may opt out."""
    restricted: bool = False
    """It enforces the Pod Security Standard `restricted`."""


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
    """Decides about a pod that is being created. Pure; called in a thread for large pods."""

    def __call__(self, review: Review, facts: NamespaceFacts) -> Verdict: ...


class Report(Protocol):
    """Tells a pod's owner what became of it. Returns at once."""

    def __call__(self, review: Review, verdict: Verdict) -> None: ...


class Reviews:
    """The handler of the HTTPS port."""

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
        """The answer to `request`, whatever happens."""
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
