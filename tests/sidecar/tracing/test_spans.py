"""A traced request leaves a span of its decision and, if it is proxied, one of the retrieval; the
data source is asked as part of the same trace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from sidecar.settings.model import TraceSettings
from sidecar.tracing import SpanExporter
from tests.sidecar.proxy.raw_client import ask
from tests.sidecar.tracing.collector import Collector, collector, texts
from tests.support.fake_control_api import fake_control_api, policy
from tests.support.proxy import source, warm
from tests.support.scripted_source import DataSource, data_source
from tests.support.sidecar import RunningSidecar, running_sidecar
from tests.support.sidecar import ask as evaluation

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{SPAN}-01"
ALLOWED, DENIED = "/contracts", "/payroll"


@dataclass
class Traced:
    """A sidecar that exports to `collector`, in front of `upstream`."""

    sidecar: RunningSidecar
    exporter: SpanExporter
    collector: Collector
    upstream: DataSource
    port: int

    async def get(self, path: str, *fields: str) -> int:
        lines = "".join(f"{field}\r\n" for field in fields)
        answered = await ask(self.port, f"GET {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n".encode())
        return answered.status


@asynccontextmanager
async def traced(tmp_path: Path, ratio: float = 0.0) -> AsyncIterator[Traced]:
    async with collector() as collects, data_source() as upstream, fake_control_api() as fake:
        fake.create_tenant(policy(allowed_sources=("*",)))
        configured = source(upstream.port, alias="files")
        traces = TraceSettings(collects.address, ratio)
        async with running_sidecar(tmp_path, fake, sources=(configured,), traces=traces) as running:
            exporter = running.parts.exporter
            assert exporter is not None
            proxy = running.parts.listeners[0]
            await warm(proxy)  # type: ignore[arg-type]
            async with exporter:
                port = proxy.port("files")  # type: ignore[attr-defined]
                yield Traced(running, exporter, collects, upstream, port)


async def test_a_proxied_retrieval_has_a_span_and_one_of_its_decision(tmp_path: Path) -> None:
    async with traced(tmp_path) as setup:
        assert await setup.get("/readme", f"traceparent: {SAMPLED}", "tracestate: a=1") == 200
        await setup.exporter.flush()
        retrieval = setup.collector.named("retrieval rest://files/readme")
        decision = setup.collector.named("decide rest://files/readme")
        assert len(setup.collector.spans) == 2
    (seen,) = setup.upstream.seen
    assert {retrieval.trace_id.hex(), decision.trace_id.hex()} == {TRACE}
    # agent > retrieval > decision, and agent > retrieval > the data source's own spans
    assert retrieval.parent_span_id.hex() == SPAN
    assert decision.parent_span_id == retrieval.span_id
    assert seen.values("traceparent") == [f"00-{TRACE}-{retrieval.span_id.hex()}-01"]
    assert seen.values("tracestate") == ["a=1"]
    assert retrieval.start_time_unix_nano <= decision.end_time_unix_nano
    assert decision.end_time_unix_nano <= retrieval.end_time_unix_nano
    about = texts(retrieval.attributes)
    assert about["gen_ai.operation.name"] == "retrieval"
    assert about["gen_ai.data_source.id"] == "rest://files/readme"
    assert about["gen_ai.provider.name"] == "rest"
    assert about["http.response.status_code"] == "200"
    assert texts(decision.attributes)["sluice.decision"] == "ALLOW"
    (resource,) = setup.collector.resources
    assert resource["service.name"] == "sluice-sidecar"
    assert resource["service.instance.id"] == "sidecar-1"


async def test_the_span_has_the_id_of_the_record(tmp_path: Path) -> None:
    async with traced(tmp_path) as setup:
        await setup.get("/readme", f"traceparent: {SAMPLED}")
        await setup.exporter.flush()
        decision = setup.collector.named("decide rest://files/readme")
        records = await setup.sidecar.records()
    (recorded,) = [each["eid"] for each in records if each["kind"] == "decision"]
    assert texts(decision.attributes)["sluice.event_id"] == recorded


async def test_a_denial_is_an_error_and_sends_nothing_to_the_data_source(tmp_path: Path) -> None:
    async with traced(tmp_path) as setup:
        assert (
            await setup.get(
                "/secret/x", f"traceparent: {SAMPLED}", "X-Sluice-Sensitivity: critical"
            )
            == 403
        )
        await setup.exporter.flush()
        (retrieval,) = [s for s in setup.collector.spans if s.name.startswith("retrieval")]
        (decision,) = [s for s in setup.collector.spans if s.name.startswith("decide")]
    assert not setup.upstream.seen
    assert texts(decision.attributes)["sluice.decision"] == "DENY"
    assert retrieval.status.code == retrieval.status.STATUS_CODE_ERROR
    assert texts(retrieval.attributes)["error.type"] == "403"


async def test_an_unsampled_context_is_passed_on_unchanged(tmp_path: Path) -> None:
    unsampled = f"00-{TRACE}-{SPAN}-00"
    async with traced(tmp_path, ratio=1.0) as setup:
        assert await setup.get("/readme", f"TraceParent: {unsampled}") == 200
        await setup.exporter.flush()
        assert not setup.collector.spans
    (seen,) = setup.upstream.seen
    assert seen.values("traceparent") == [unsampled]


async def test_a_request_without_a_context_starts_a_trace_if_sampled(tmp_path: Path) -> None:
    async with traced(tmp_path, ratio=1.0) as setup:
        assert await setup.get("/readme") == 200
        await setup.exporter.flush()
        retrieval = setup.collector.named("retrieval rest://files/readme")
    (seen,) = setup.upstream.seen
    assert not retrieval.parent_span_id
    expected = f"00-{retrieval.trace_id.hex()}-{retrieval.span_id.hex()}-01"
    assert seen.values("traceparent") == [expected]


async def test_without_sampling_nothing_is_added(tmp_path: Path) -> None:
    async with traced(tmp_path, ratio=0.0) as setup:
        assert await setup.get("/readme") == 200
        await setup.exporter.flush()
        assert not setup.collector.spans
    (seen,) = setup.upstream.seen
    assert not seen.values("traceparent")


async def test_an_evaluation_has_a_span_under_its_caller_s(tmp_path: Path) -> None:
    async with traced(tmp_path) as setup:
        headers = {"traceparent": SAMPLED}
        body = orjson.dumps(evaluation())
        answer = await setup.sidecar.call("POST", "/v1/context/evaluate", body, headers=headers)
        assert answer.status == 200
        batch = orjson.dumps({"items": [evaluation(), evaluation()]})
        answer = await setup.sidecar.call(
            "POST", "/v1/context/evaluate/batch", batch, headers=headers
        )
        assert answer.status == 200, answer.text()
        await setup.sidecar.evaluate()  # not traced
        await setup.exporter.flush()
        spans = setup.collector.spans
    assert [span.name for span in spans] == ["decide contracts"] * 3
    assert {span.parent_span_id.hex() for span in spans} == {SPAN}
    events = {texts(span.attributes)["sluice.event_id"] for span in spans}
    assert len(events) == 3


async def test_a_failing_collector_loses_only_spans(tmp_path: Path) -> None:
    async with traced(tmp_path) as setup:
        setup.collector.status = 503
        for _ in range(3):
            assert await setup.get("/readme", f"traceparent: {SAMPLED}") == 200
            await setup.exporter.flush()
        assert await setup.sidecar.metric("sluice_spans_dropped_total") == 6
        setup.collector.status = 200
        assert await setup.get("/readme", f"traceparent: {SAMPLED}") == 200
        await setup.exporter.flush()
        assert await setup.sidecar.metric("sluice_spans_exported_total") == 2
        assert len(await setup.sidecar.responses()) == 4


async def test_spans_hold_no_query_and_no_user(tmp_path: Path) -> None:
    async with traced(tmp_path) as setup:
        fields = (f"traceparent: {SAMPLED}", "X-Sluice-User: ann", "Authorization: Bearer s3cret")
        assert await setup.get("/readme?token=s3cret", *fields) == 200
        await setup.exporter.flush()
        shown = str(setup.collector.spans)
    assert "s3cret" not in shown
    assert "ann" not in shown
