"""The spans of one traced request: one for the request if it is proxied, one for each decision.

Names and attributes follow OpenTelemetry's GenAI conventions for retrievals where those have one.
Holds no query, no user and no header: a collector may be read by more people than the audit trail.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from typing import NamedTuple

from policies.evaluate import Decision
from policies.retrieval import Retrieval
from sidecar.tracing.trace_context import TraceContext

_SPAN_BYTES = 8


class SpanKind(IntEnum):
    """The numbers of OTLP."""

    internal = 1
    client = 3


class Span(NamedTuple):
    """One finished span. Times in microseconds. `error` is the type of what failed, if anything
    did."""

    name: str
    kind: SpanKind
    context: TraceContext
    parent_id: str | None
    started: int
    ended: int
    attributes: dict[str, str | int]
    error: str | None = None


class Trace:
    """One request that is sampled. `context` is the position that its own requests take: that of
    the request's span if it has one (`proxied`), otherwise its caller's."""

    __slots__ = ("_finished", "_now", "_parent", "_random", "_sources", "_started", "context")

    def __init__(
        self,
        parent: TraceContext | None,
        now: Callable[[], int],
        random_bytes: Callable[[int], bytes],
        finished: Callable[[Span], None],
        *,
        proxied: bool,
    ) -> None:
        self._parent = None if parent is None else parent.span_id
        self._now, self._random, self._finished = now, random_bytes, finished
        self._started = now()
        self._sources: list[Retrieval] = []
        trace_id = random_bytes(16).hex() if parent is None else parent.trace_id
        own = proxied or parent is None
        span_id = random_bytes(_SPAN_BYTES).hex() if own else parent.span_id if parent else ""
        self.context = TraceContext(trace_id, span_id, True)

    def decided(self, retrieval: Retrieval, decision: Decision, event_id: str) -> None:
        """End the span of a decision whose record is in the spool."""
        self._sources.append(retrieval)
        attributes: dict[str, str | int] = {
            **_about(retrieval),
            "sluice.decision": decision.decision,
            "sluice.policy_name": decision.policy_name,
            "sluice.check": decision.check or "none",
            "sluice.event_id": event_id,
        }
        context = self.context._replace(span_id=self._random(_SPAN_BYTES).hex())
        self._finished(
            Span(
                f"decide {retrieval.source_id}",
                SpanKind.internal,
                context,
                self.context.span_id,
                self._started,
                self._now(),
                attributes,
            )
        )

    def responded(self, status: int, decision: str) -> None:
        """End the span of a proxied request. `status` is the one that the agent got, 0 if none;
        `decision` the label of the metrics."""
        attributes: dict[str, str | int] = {"sluice.decision": decision}
        name = "retrieval"
        if self._sources:
            # A request about several sources has a span of each decision; its own has the first.
            attributes |= _about(self._sources[0])
            name = f"retrieval {self._sources[0].source_id}"
        if status:
            attributes["http.response.status_code"] = status
        failed = status == 0 or status >= 400
        error = (str(status) if status else "client_closed") if failed else None
        self._finished(
            Span(
                name,
                SpanKind.client,
                self.context,
                self._parent,
                self._started,
                self._now(),
                attributes,
                error,
            )
        )


_current: ContextVar[Trace | None] = ContextVar("trace", default=None)
current_trace = _current.get
"""The trace of the request that this task works on; None if it is not sampled."""


@contextmanager
def within(trace: Trace | None) -> Iterator[None]:
    """What runs inside belongs to `trace`."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


def _about(retrieval: Retrieval) -> dict[str, str | int]:
    about: dict[str, str | int] = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": retrieval.source_id,
        "sluice.sensitivity": retrieval.sensitivity_level,
        "sluice.agent_role": retrieval.agent_role,
    }
    if retrieval.agent_id is not None:
        about["gen_ai.agent.id"] = retrieval.agent_id
    if retrieval.source_type is not None:
        about["gen_ai.provider.name"] = retrieval.source_type
    return about
