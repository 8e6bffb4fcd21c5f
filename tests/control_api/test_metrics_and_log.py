"""Metrics and log lines of a running service: where they appear, and what they never hold."""

from __future__ import annotations

import http.client
import json
import logging
import signal
from pathlib import Path
from typing import Any

import pytest

from policies.ground.log_line import json_line
from policies.ground.process import json_logging
from tests.support.control_api import ControlApi, asked, running_control_api
from tests.support.control_api_process import process

__all__ = ["process"]  # a fixture


@pytest.mark.deep(stands_in="test_metrics_with_a_port_of_their_own_are_nowhere_else")
def test_metrics_can_have_a_port_of_their_own(tmp_path: Path) -> None:
    with running_control_api(tmp_path, SLUICE_METRICS_LISTEN="127.0.0.1:0") as api:
        assert api.started is not None
        assert api.started.metrics_listen is not None
        own = api.started.metrics_listen.port
        assert api.call("GET", "/metrics").status == 404
        assert "/metrics" not in api.admin("GET", "/openapi.json")["paths"]
        api.evaluate()
        text = api.call("GET", "/metrics", key=None, port=own).raw.decode()
        assert 'sluice_decisions_total{check="none",decision="ALLOW"} 1.0' in text
        assert api.call("GET", "/v1/keys", key=None, port=own).status == 401
        assert api.call("GET", "/health", key=None, port=own).status == 404


def test_metrics_with_a_port_of_their_own_are_nowhere_else(tmp_path: Path) -> None:
    with running_control_api(tmp_path, SLUICE_METRICS_LISTEN="127.0.0.1:0") as api:
        assert api.started is not None
        assert api.started.metrics_listen is not None
        own = api.started.metrics_listen.port
        assert api.call("GET", "/metrics").status == 404
        assert "/metrics" not in api.admin("GET", "/openapi.json")["paths"]
        api.evaluate()
        text = api.call("GET", "/metrics", key=None, port=own).raw.decode()
        assert 'sluice_decisions_total{check="none",decision="ALLOW"} 1.0' in text
        assert api.call("GET", "/v1/keys", key=None, port=own).status == 401
        assert api.call("GET", "/health", key=None, port=own).status == 404


def test_no_label_of_a_metric_holds_a_caller_s_text(
    fresh: ControlApi, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does a log line, which names the event and the request."""
    caplog.set_level(logging.DEBUG, "sluice")
    caplog.handler.setFormatter(json_logging.JsonFormatter(json_line, lambda: 0))
    fresh.approved("agt_metrics")
    sent = {"user_id": "u-secret", "source_id": "s-secret", "query": "q-secret"}
    body = asked(**sent, agent_id="agt_metrics")
    headers = {"X-Request-ID": "find-me"}
    decided = fresh.call("POST", "/v1/context/evaluate", body, headers=headers).body
    lines = [json.loads(line) for line in caplog.text.splitlines()]
    (line,) = [each for each in lines if each["logger"] == "sluice.decision"]
    assert decided["event_id"] in line["message"]
    assert line["request_id"] == "find-me"
    assert "secret" not in caplog.text
    assert fresh.admin_key not in caplog.text
    fresh.call("GET", "/v1/agents/agt_metrics")
    fresh.call("GET", "/v1/path-secret")
    text = fresh.call("GET", "/metrics", key=None).raw.decode()
    for name in ("secret", "agt_metrics", "default"):
        assert name not in text
    assert 'operation="get_agent",status="200"' in text


@pytest.mark.deep(stands_in="test_no_label_of_a_metric_holds_a_caller_s_text")
def test_log_lines_are_json_with_the_request_s_id_and_nothing_that_a_caller_sent(
    process: Any,
) -> None:
    service = process(SLUICE_LOG_LEVEL="debug")
    port, key = service.ready(), service.first_keys()["admin_key"]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"X-API-Key": key, "Content-Type": "application/json", "X-Request-ID": "find-me"}
    body = asked(user_id="u-private", query="q-private", source_id="s-private")
    connection.request("POST", "/v1/context/evaluate", json.dumps(body), headers)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    service.process.send_signal(signal.SIGTERM)
    assert service.ended() == 0
    lines = [json.loads(line) for line in service.said().splitlines() if line.startswith("{")]
    (decided,) = [line for line in lines if line["logger"] == "sluice.decision"]
    assert decided["request_id"] == "find-me"
    assert answer["event_id"] in decided["message"]
    logged = json.dumps(lines)
    assert "private" not in logged
    assert key not in logged
