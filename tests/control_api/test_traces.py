"""Each traced decision is a span at the collector, under its caller's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from control_api.settings import read
from policies.ground.settings import SettingsError
from tests.sidecar.tracing.collector import texts
from tests.support.control_api import asked, running_control_api

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
UNSAMPLED = {"traceparent": f"00-{TRACE}-{SPAN}-00"}
EVALUATE = "/v1/context/evaluate"


class Collector(ThreadingHTTPServer):
    """Takes OTLP's protobuf on loopback."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.exports: list[ExportTraceServiceRequest] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for export in self.exports
            for resource in export.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        assert self.path == "/v1/traces"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.exports.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass  # not on the tests' output


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.deep(stands_in="test_a_batch_is_a_span_for_each_item")
def test_a_decision_is_a_span_under_its_caller_s(tmp_path: Path, collector: Collector) -> None:
    settings = {"SLUICE_TRACES_ENDPOINT": collector.address, "SLUICE_TRACES_SAMPLE_RATIO": "0"}
    with running_control_api(tmp_path, **settings) as api:
        traced = api.call("POST", EVALUATE, asked(), headers=SAMPLED).body
        denied = api.call("POST", EVALUATE, asked(source_id="payroll"), headers=SAMPLED).body
        for headers in ({}, UNSAMPLED):
            assert api.call("POST", EVALUATE, asked(), headers=headers).status == 200
    # What was finished is exported before the service has stopped.
    first, second = collector.spans
    assert (first.name, second.name) == ("decide handbook", "decide payroll")
    assert {first.trace_id.hex(), second.trace_id.hex()} == {TRACE}
    assert first.parent_span_id.hex() == SPAN
    assert first.start_time_unix_nano <= first.end_time_unix_nano
    about = texts(first.attributes)
    assert about["sluice.event_id"] == traced["event_id"]
    assert about["sluice.decision"] == "ALLOW"
    assert texts(second.attributes)["sluice.event_id"] == denied["event_id"]
    assert texts(second.attributes)["sluice.decision"] == "DENY"
    resource = texts(collector.exports[0].resource_spans[0].resource.attributes)
    assert resource["service.name"] == "sluice-control"


def test_a_batch_is_a_span_for_each_item(tmp_path: Path, collector: Collector) -> None:
    settings = {"SLUICE_TRACES_ENDPOINT": collector.address, "SLUICE_TRACES_SAMPLE_RATIO": "1"}
    private = {"user_id": "ann-of-accounting", "query": "the salaries"}
    with running_control_api(tmp_path, **settings) as api:
        items = {"items": [asked(), asked(source_id="payroll"), asked(**private)]}
        decided = api.call("POST", f"{EVALUATE}/batch", items, headers=SAMPLED).body
        alone = api.call("POST", EVALUATE, asked(), headers=SAMPLED).body
        assert api.call("POST", EVALUATE, asked(), headers=UNSAMPLED).status == 200
        api.evaluate()  # by the ratio
    assert len(collector.spans) == 5
    *batch, single, own = collector.spans
    assert {(each.trace_id.hex(), each.parent_span_id.hex()) for each in (*batch, single)} == {
        (TRACE, SPAN)
    }
    assert texts(single.attributes)["sluice.event_id"] == alone["event_id"]
    times = [(each.start_time_unix_nano, each.end_time_unix_nano) for each in collector.spans]
    assert all(start <= end for start, end in times)
    resource = texts(collector.exports[0].resource_spans[0].resource.attributes)
    assert resource["service.name"] == "sluice-control"
    assert [each.name for each in batch[:2]] == ["decide handbook", "decide payroll"]
    told = [texts(each.attributes) for each in batch]
    assert [each["sluice.decision"] for each in told] == ["ALLOW", "DENY", "ALLOW"]
    assert told[0]["sluice.event_id"] == decided["results"][0]["event_id"]
    assert not own.parent_span_id
    assert own.trace_id.hex() != TRACE
    assert not [text for text in private.values() if text in str(collector.spans)]


@pytest.mark.deep(stands_in="test_a_batch_is_a_span_for_each_item")
def test_a_ratio_of_one_traces_every_decision(tmp_path: Path, collector: Collector) -> None:
    settings = {"SLUICE_TRACES_ENDPOINT": collector.address, "SLUICE_TRACES_SAMPLE_RATIO": "1"}
    with running_control_api(tmp_path, **settings) as api:
        for _ in range(3):
            api.evaluate()
    assert len({span.trace_id for span in collector.spans}) == 3
    assert not any(span.parent_span_id for span in collector.spans)


def test_no_span_holds_the_user_or_the_query(tmp_path: Path, collector: Collector) -> None:
    with running_control_api(tmp_path, SLUICE_TRACES_ENDPOINT=collector.address) as api:
        body = asked(user_id="ann-of-accounting", query="the salaries")
        assert api.call("POST", EVALUATE, body, headers=SAMPLED).status == 200
    (span,) = collector.spans
    assert "ann-of-accounting" not in str(span)
    assert "salaries" not in str(span)


def test_an_unreachable_collector_changes_no_answer(tmp_path: Path, collector: Collector) -> None:
    away = "http://127.0.0.1:9"
    with running_control_api(
        tmp_path, SLUICE_TRACES_ENDPOINT=away, SLUICE_TRACES_SAMPLE_RATIO="1"
    ) as api:
        assert api.evaluate()["decision"] == "ALLOW"
        api.verified()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLUICE_TRACES_ENDPOINT", "127.0.0.1:4318"),
        ("SLUICE_TRACES_ENDPOINT", "http://user:password@collector"),
        ("SLUICE_TRACES_SAMPLE_RATIO", "2"),
        ("SLUICE_TRACES_SAMPLE_RATIO", "nan"),
        ("SLUICE_TRACES_SAMPLE_RATIO", "-0.1"),
    ],
)
def test_unusable_settings_of_traces_are_refused_with_a_message(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read({name: value})
    (complaint,) = caught.value.complaints
    assert complaint.startswith(name)
    assert "password" not in complaint
