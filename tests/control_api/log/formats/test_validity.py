"""Each format against its own specification: the published schema, the official library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema_rs
import pytest
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.exceptions import BaseCloudEventException
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from google.protobuf import json_format
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber

from control_api.log.formats import FORMATS, OCSF_VERSION, otel_resource
from policies.ground.canonical import micros
from tests.control_api.log.formats.events import EVENTS, TENANT

# Of https://github.com/elastic/ecs/blob/v8.17.0/generated/csv/fields.csv, those that we write:
# their type, and whether they are arrays.
ECS_TYPES: dict[str, Any] = {
    "@timestamp": str,
    "ecs.version": str,
    "event.action": str,
    "event.category": list,
    "event.hash": str,
    "event.id": str,
    "event.kind": str,
    "event.module": str,
    "event.outcome": str,
    "event.reason": str,
    "event.sequence": int,
    "event.type": list,
    "labels": dict,
    "observer.name": str,
    "organization.id": str,
    "rule.name": str,
    "rule.version": str,
    "service.name": str,
    "user.id": str,
    "user.roles": list,
}
# `allowed_values` in https://github.com/elastic/ecs/blob/v8.17.0/schemas/event.yml.
ECS_VALUES = {
    "event.kind": "alert asset enrichment event metric state pipeline_error signal",
    "event.category": "api authentication configuration database driver email file host iam "
    "intrusion_detection library malware network package process registry session threat "
    "vulnerability web",
    "event.type": "access admin allowed change connection creation deletion denied end error group "
    "indicator info installation protocol start user",
    "event.outcome": "failure success unknown",
}


def line(form: str, name: str) -> bytes:
    return FORMATS[form].encode(EVENTS[name], TENANT)


@cache
def ocsf() -> jsonschema_rs.Validator:
    schema = OcsfJsonSchemaEmbedded(get_ocsf_schema(version=OCSF_VERSION))
    activity = schema.lookup_class_name_from_uid(class_uid=6005)
    whole: dict[str, Any] = schema.get_class_schema(
        class_name=activity, profiles=["security_control"]
    )
    assert whole["additionalProperties"] is False
    return jsonschema_rs.validator_for(whole)


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_is_valid_ocsf(name: str) -> None:
    event = json.loads(line("ocsf", name))
    assert [fault.message for fault in ocsf().iter_errors(event)] == []


@pytest.mark.parametrize(
    "member", ["class_uid", "time", "metadata", "actor", "src_endpoint", "databucket"]
)
def test_the_schema_of_ocsf_finds_missing_fields(member: str) -> None:
    event = json.loads(line("ocsf", "allowed"))
    del event[member]
    assert not ocsf().is_valid(event)


def leaves(document: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, dict) and path + name != "labels":
            yield from leaves(value, f"{path}{name}.")
        else:
            yield path + name, value


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_is_valid_ecs(name: str) -> None:
    for field, value in leaves(json.loads(line("ecs", name))):
        assert isinstance(value, ECS_TYPES[field]), field
        values = value if isinstance(value, list) else [value]
        if field in ECS_VALUES:
            assert set(values) <= set(ECS_VALUES[field].split())
        if field == "labels":  # "should not contain nested objects; all values are keyword"
            assert {type(each) for each in value.values()} == {str}
        elif isinstance(value, list):
            assert {type(each) for each in value} == {str}


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_is_a_valid_cloudevent(name: str) -> None:
    read: BaseCloudEvent = JSONFormat().read(CloudEvent, line("cloudevents", name))
    event = EVENTS[name]
    assert (read.get_id(), read.get_source()) == (event["event_id"], f"urn:sluice:{TENANT}")
    time, data = read.get_time(), read.get_data()
    assert time is not None
    assert time.strftime("%f") == event["timestamp"][20:26]
    assert isinstance(data, dict)
    assert data["source_id"] == event["source_id"]


def test_the_sdk_of_cloudevents_finds_missing_fields() -> None:
    event = json.loads(line("cloudevents", "allowed"))
    del event["type"]
    with pytest.raises(BaseCloudEventException):
        JSONFormat().read(CloudEvent, json.dumps(event).encode())


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_is_a_valid_otlp_record(name: str) -> None:
    record = json_format.Parse(line("otel", name), LogRecord())
    event = EVENTS[name]
    assert record.event_name == "sluice.decision"
    time = micros(event["timestamp"]) * 1000
    assert record.time_unix_nano == (time if 0 < time < 2**64 else 0)
    assert SeverityNumber.Name(record.severity_number) == (
        f"SEVERITY_NUMBER_{'INFO' if event['decision'] == 'ALLOW' else 'WARN'}"
    )
    values = {each.key: each.value for each in record.attributes}
    assert values["sluice.seq"].int_value == event["seq"]
    assert values["sluice.reason"].string_value == event["reason"]


def test_a_resource_and_its_records_are_a_request_of_otlp() -> None:
    records = [json.loads(line("otel", name)) for name in EVENTS]
    whole = {
        "resourceLogs": [
            {"resource": otel_resource("sidecar-1"), "scopeLogs": [{"logRecords": records}]}
        ]
    }
    request = json_format.Parse(json.dumps(whole), ExportLogsServiceRequest())
    [logs] = request.resource_logs
    assert [each.key for each in logs.resource.attributes] == [
        "service.name",
        "service.version",
        "service.instance.id",
    ]
    assert len(logs.scope_logs[0].log_records) == len(EVENTS)


@pytest.mark.parametrize("wrong", ['{"timeUnixNano": "-1"}', '{"name": "sluice.decision"}'])
def test_the_protobufs_of_otlp_find_invalid_fields(wrong: str) -> None:
    with pytest.raises(json_format.ParseError):
        json_format.Parse(wrong, LogRecord())
