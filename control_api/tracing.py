"""Traces each recorded decision as one span, with the OpenTelemetry SDK.

Off unless `SLUICE_TRACES_ENDPOINT` is set, and imported only then: the SDK takes some 25 MiB and a
thread. The sidecar makes the same spans, with the same names (`sidecar/tracing.py`).
"""

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from control_api.current_request import TRACEPARENT
from policies import __version__
from policies.evaluate import Decision
from policies.retrieval import Retrieval

EXPORT_SECONDS = 3.0
_PATH = "/v1/traces"
_propagator = TraceContextTextMapPropagator()


class DecisionTracer:
    """Exports the spans of decisions to the collector at `endpoint`. `ratio`, 0 to 1, is the share
    of decisions to trace among those whose caller's `traceparent` leaves it open. `instance` names
    this process."""

    def __init__(self, endpoint: str, ratio: float, instance: str) -> None:
        session = requests.Session()
        # Neither a proxy nor a .netrc of the environment: spans go to this address alone.
        session.trust_env = False
        exporter = OTLPSpanExporter(
            endpoint=endpoint.rstrip("/") + _PATH, timeout=EXPORT_SECONDS, session=session
        )
        resource = Resource(
            {
                "service.name": "sluice-control",
                "service.version": __version__,
                "service.instance.id": instance,
            }
        )
        self._provider = TracerProvider(
            ParentBased(TraceIdRatioBased(ratio)), resource, shutdown_on_exit=False
        )
        # Beyond 2,048 waiting spans it drops; a decision never waits for the collector.
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("sluice", __version__)

    def decided(
        self, retrieval: Retrieval, decision: Decision, event_id: str, times: tuple[int, int]
    ) -> None:
        """Trace a decision that is in the log. `times` are its start and end in microseconds."""
        started, ended = times
        span = self._tracer.start_span(
            f"decide {retrieval.source_id}", _parent(), start_time=started * 1000
        )
        # Most are not sampled, and cost no attributes.
        if span.is_recording():
            span.set_attributes(_attributes(retrieval, decision, event_id))
        span.end(ended * 1000)

    def close(self) -> None:
        """Export the finished spans. This blocks for some seconds if the collector is
        unreachable."""
        self._provider.shutdown()


def _parent() -> Context:
    """Return the context of the caller's span. Without exactly one `traceparent` header, a new
    trace begins here."""
    headers = TRACEPARENT.get()
    carrier = {"traceparent": headers[0]} if len(headers) == 1 else {}
    return _propagator.extract(carrier, Context())


def _attributes(retrieval: Retrieval, decision: Decision, event_id: str) -> dict[str, str]:
    # No query, no user: a collector may be read by more people than the audit trail.
    about = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": retrieval.source_id,
        "sluice.sensitivity": retrieval.sensitivity_level,
        "sluice.agent_role": retrieval.agent_role,
        "sluice.decision": decision.decision,
        "sluice.policy_name": decision.policy_name,
        "sluice.check": decision.check or "none",
        "sluice.event_id": event_id,
    }
    if retrieval.agent_id is not None:
        about["gen_ai.agent.id"] = retrieval.agent_id
    if retrieval.source_type is not None:
        about["gen_ai.provider.name"] = retrieval.source_type
    return about
