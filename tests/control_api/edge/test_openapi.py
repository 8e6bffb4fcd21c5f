"""The API's description: valid, complete, made from the types that validate, and true of the
responses."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
import schemathesis
from jsonschema_rs import Draft202012Validator
from pydantic import TypeAdapter

from control_api.edge import openapi_responses
from control_api.edge.field_descriptions import FIELDS, describe_fields
from control_api.edge.openapi import describe
from control_api.edge.openapi_responses import example_of, statuses
from control_api.edge.route import Route, Scope
from control_api.policy.models import PolicyBody
from control_api.routes import ROUTES
from policies import __version__
from policies.trail import fields
from tests.control_api.console.reader import Visitor
from tests.control_api.edge.test_scopes import BODIES
from tests.control_api.edge.world import REQUIRED_QUERY
from tests.support.control_api import POLICY, Answer, ControlApi
from tests.support.waiting import until

NOTHING = {"sources": ["a source that no policy allows"]}
DOCUMENT: dict[str, Any] = json.loads(describe(ROUTES, __version__))
METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    ]


def test_the_document_describes_exactly_the_routes() -> None:
    described = {(method.upper(), path) for path, method, _ in operations()}
    assert described == {(route.method, route.path) for route in ROUTES}


def test_the_document_has_the_form_of_its_specification() -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    assert {"title", "version"} <= DOCUMENT["info"].keys()
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(names) == len(set(names))
    for path, method, operation in operations():
        assert method in METHODS
        assert operation["summary"], path
        declared = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert declared == set(re.findall(r"\{(\w+)\}", path))
        for parameter in operation["parameters"]:
            assert parameter["in"] in ("path", "query", "header")
            assert parameter.get("required") or parameter["in"] != "path"
            assert parameter["schema"]
        for status, answer in operation["responses"].items():
            assert re.fullmatch(r"[1-5]\d\d", status)
            assert answer["description"]


def test_every_reference_leads_somewhere_and_every_schema_is_used() -> None:
    text = json.dumps(DOCUMENT)
    references = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', text))
    assert references == set(DOCUMENT["components"]["schemas"])
    assert len(re.findall(r'"\$ref": "', text)) == len(re.findall(r'"\$ref": "#/comp', text))


def test_every_operation_has_its_errors_and_an_example() -> None:
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        errors = {int(status) for status in operation["responses"] if status >= "400"}
        assert errors == statuses(route)
        for status in errors:
            media = operation["responses"][str(status)]["content"]["application/json"]
            assert media["example"]["code"] == status
        if route.response_type is not None:
            answer = operation["responses"][str(route.status)]["content"]["application/json"]
            assert "example" in answer, route.path
        if route.body:
            assert "example" in operation["requestBody"]["content"]["application/json"], route.path


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_example_has_its_declared_type(route: Any) -> None:
    if route.response_type is not None:
        TypeAdapter(route.response_type).validate_python(example_of(route.response_type))
    if route.body:
        values = {**dict.fromkeys(route.parameters, "an-id"), **route.request_type.example}
        route.request_type.model_validate(values)


def test_scopes_are_described_and_open_routes_need_no_key() -> None:
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        if route.scopes is None:
            assert operation["security"] == []
        else:
            names = sorted(route.scopes)
            either = [{scheme: [name]} for scheme in ("ApiKey", "Bearer") for name in names]
            assert operation["security"] == either
            assert operation["x-sluice-scopes"] == sorted(route.scopes)


@pytest.mark.deep(
    stands_in="test_the_specification_s_schema_refuses_a_broken_document_and_accepts_ours"
)
def test_the_document_passes_the_schema_of_its_specification() -> None:
    schemathesis.openapi.from_dict(DOCUMENT).validate()


def test_the_specification_s_schema_refuses_a_broken_document_and_accepts_ours() -> None:
    broken = copy.deepcopy(DOCUMENT)
    broken["paths"]["/v1/keys"]["get"]["responses"]["200"].pop("description")
    with pytest.raises(Exception, match="description"):
        schemathesis.openapi.from_dict(broken).validate()
    schemathesis.openapi.from_dict(DOCUMENT).validate()


def test_every_operation_has_a_described_tag() -> None:
    tags = {tag["name"]: tag["description"] for tag in DOCUMENT["tags"]}
    assert all(tags.values())
    assert {tag for _, _, operation in operations() for tag in operation["tags"]} == set(tags)
    for path, _, operation in operations():
        assert operation["description"], path
        # Citations are for readers of the code.
        assert not re.search(r"service\.md|contract|parse_|`_", operation["description"]), path
    scheme = DOCUMENT["components"]["securitySchemes"]["ApiKey"]["description"]
    assert all(f"`{scope}`" in scheme for scope in Scope)


def test_every_response_describes_its_headers() -> None:
    known = DOCUMENT["components"]["headers"]
    for path, _, operation in operations():
        for status, answer in operation["responses"].items():
            described = set(answer["headers"])
            assert "X-Request-ID" in described, (path, status)
            assert described <= set(known)
            assert ("Retry-After" in described) == (status in ("429", "503")), (path, status)
            assert ("WWW-Authenticate" in described) == (status == "401")
    listed = {route.name for route in ROUTES if route.paged}
    linked = {
        operation["operationId"]
        for _, _, operation in operations()
        for answer in operation["responses"].values()
        if "Link" in answer["headers"]
    }
    assert linked == listed


def test_every_example_fits_its_schema() -> None:
    """All examples: of parameters, bodies, responses and errors."""
    found: dict[str, tuple[Any, Any]] = {}
    checked = 0
    for path, method, operation in operations():
        media = [answer["content"] for answer in operation["responses"].values()]
        if "requestBody" in operation:
            media.append(operation["requestBody"]["content"])
        pairs = [(each["schema"], each["example"]) for m in media for each in m.values() if each]
        pairs += [(p["schema"], p["example"]) for p in operation["parameters"] if "example" in p]
        checked += len(pairs)
        found |= {json.dumps(each, sort_keys=True): each for each in pairs}
        in_path = [each for each in operation["parameters"] if each["in"] == "path"]
        assert all("example" in each for each in in_path), (method, path)
    assert checked > 5 * len(ROUTES)
    # As one list: a validator for each would be built from all components every time.
    schemas, examples = zip(*found.values(), strict=True)
    whole = {"prefixItems": schemas, "components": DOCUMENT["components"]}
    Draft202012Validator(whole).validate(examples)


def test_every_link_names_an_operation_that_takes_its_parameters() -> None:
    names = {operation["operationId"]: operation for _, _, operation in operations()}
    links = [
        (operation, link)
        for operation in names.values()
        for answer in operation["responses"].values()
        for link in answer.get("links", {}).values()
    ]
    assert len(links) > 10
    for _, link in links:
        taken = {each["name"] for each in names[link["operationId"]]["parameters"]}
        assert set(link["parameters"]) <= taken


def test_every_pattern_means_the_same_to_python_and_ecmascript() -> None:
    patterns = set(re.findall(r'"pattern": "((?:[^"\\\\]|\\\\.)*)"', json.dumps(DOCUMENT)))
    assert patterns
    for each in patterns:
        pattern = json.loads(f'"{each}"')
        re.compile(pattern)
        # Syntax of Python only: end of text, named groups, inline flags.
        assert not re.search(r"\\[AZ]|\(\?P|\(\?[aiLmsux]", pattern), pattern
        assert pattern.startswith("^"), pattern
        assert pattern.endswith("$"), pattern


def test_a_write_that_refuses_unknown_fields_declares_so() -> None:
    def schema(path: str) -> dict[str, Any]:
        media = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        found: dict[str, Any] = media["schema"]
        return found

    assert schema("/v1/keys")["additionalProperties"] is False
    assert schema("/v1/context/evaluate")["additionalProperties"] is True
    assert set(schema("/v1/keys")["required"]) == {"name", "scope"}


def check_declared(route: Route, answer: Answer) -> None:
    declared: TypeAdapter[Any] = TypeAdapter(route.response_type)
    declared.validate_json(answer.raw, strict=True)
    again = declared.dump_json(declared.validate_json(answer.raw), by_alias=True)
    assert json.loads(again) == answer.body, (route.name, "a member more or less than declared")


WRITES = (
    *("evaluate_context", "evaluate_batch", "simulate_context", "record_lineage", "place_hold"),
    *("diff_policies", "review_policies", "publish_candidate", "register_agent", "create_key"),
    *("bind_key", "rotate_key", "create_alert_rule", "create_sign_in_link", "create_tenant"),
    *("change_tenant_settings", "provision_key", "report_sidecar", "claim_session"),
    *("ingest_events", "look_up_documents", "put_source", "start_verification"),
)
"""Those that cost little, and whose objects are made above."""


def test_the_answers_of_most_operations_are_as_declared(api: ControlApi) -> None:
    """Those that cost little. All else is parsed the same way below."""
    api.approved("agt_read")
    event = api.evaluate(agent_id="agt_read", session_id="read", query="q")
    policy = api.admin("POST", "/v1/policies", BODIES["create_policy"] | {"name": "read"})
    rule = api.admin("POST", "/v1/alerts/rules", BODIES["create_alert_rule"])
    hold = {"object_type": "session", "object_id": "absent", "reason": "read"}
    values = {
        "agent_id": "agt_read",
        "session_id": "read",
        "event_id": event["event_id"],
        "policy_id": policy["policy_id"],
        "rule_id": rule["rule_id"],
        "hold_id": api.admin("POST", "/v1/audit/holds", hold)["hold_id"],
        "key_id": api.admin("GET", "/v1/keys")[0]["key_id"],
        "tenant_id": "default",
        "name": api.admin("POST", "/v1/guardrails", {"name": "read", "never": NOTHING})["name"],
    }
    checked = 0
    for route in ROUTES:
        json_alone = route.response_type is not None and route.content_type == "application/json"
        if route.method != "GET" or not json_alone or route.name in REQUIRED_QUERY:
            continue
        if values.keys() >= set(route.parameters):
            answer = api.call("GET", route.path.format(**values))
            if answer.status == route.status:
                check_declared(route, answer)
                checked += 1
    assert checked > 25
    values |= {
        "key_id": api.admin("POST", "/v1/keys", {"name": "read", "scope": "evaluate"})["key_id"],
        "tenant_id": api.admin("POST", "/v1/admin/tenants", {"name": "read"})["tenant_id"],
        "name": "read",
        "source_pattern": "read",
    }
    bodies = BODIES | {
        "create_tenant": {"name": "read too"},
        "record_lineage": {"event_id": event["event_id"], "action_type": "sent"},
        "claim_session": {"session_id": "read-2", "agent_role": "support", "user_id": "ann"},
    }
    written = {route.name: route for route in ROUTES if route.name in WRITES}
    assert written.keys() == set(WRITES)
    for name, route in written.items():
        answer = api.call(route.method, route.path.format(**values), bodies.get(name))
        assert answer.status == route.status, (name, answer.raw)
        check_declared(route, answer)


@pytest.mark.deep(stands_in="test_the_answers_of_most_operations_are_as_declared")
def test_every_answer_is_as_declared(api: ControlApi) -> None:
    """Each response, parsed strictly as the type that the description was made from."""
    api.approved("agt_described")
    event = api.evaluate(agent_id="agt_described", session_id="described", query="q")
    api.admin("POST", "/v1/audit/lineage", {"event_id": event["event_id"], "action_type": "a"})
    policy = api.admin("GET", f"/v1/policies?name={POLICY['name']}")[0]  # a file defines it
    bodies = BODIES | {
        "replace_policy": {**BODIES["replace_policy"], "name": "another"},
        "record_lineage": {"event_id": event["event_id"], "action_type": "sent"},
        "replace_guardrail": {"never": NOTHING},
        "claim_session": {"session_id": "d2", "agent_role": "support", "user_id": "ann"},
        # A promotion must leave the policy that later routes ask for.
        "publish_candidate": {
            "policies": [{name: policy[name] for name in PolicyBody.model_fields}]
        },
    }
    values = {
        "session_id": "described",
        "event_id": event["event_id"],
        "policy_id": policy["policy_id"],
        "agent_id": "agt_described",
        "tenant_id": api.admin("POST", "/v1/admin/tenants", {"name": "described"})["tenant_id"],
        "name": "described",
        "source_pattern": "described",
    }
    rule = api.admin("POST", "/v1/alerts/rules", BODIES["create_alert_rule"])
    values["rule_id"] = rule["rule_id"]
    proof = f"/v1/audit/proof/{event['event_id']}"
    until("a checkpoint", lambda: api.call("GET", proof).status == 200)
    hold = {"object_type": "session", "object_id": "absent", "reason": "described"}
    values["impact_id"] = api.admin("POST", "/v1/policies/impact", {"policies": []})["impact_id"]
    rule = api.admin("POST", "/v1/guardrails", {"name": "described", "never": NOTHING})
    values["name"] = rule["name"]
    values["hold_id"] = api.admin("POST", "/v1/audit/holds", hold)["hold_id"]
    for route in sorted(ROUTES, key=lambda route: route.method == "DELETE"):
        if route.name == "enrol_sidecar":
            continue  # it needs a cluster: see `tests/control_api/registry/enrolment`
        made = api.admin("POST", "/v1/keys", {"name": "described", "scope": "read"})
        path = route.path
        for name in route.parameters:
            path = path.replace("{" + name + "}", (values | {"key_id": made["key_id"]})[name])
        if "name" in route.parameters:  # a promotion, and a deletion, each need one
            candidate = "/v1/policies/candidates/described"
            api.admin("PUT", candidate, bodies["publish_candidate"])
        if route.name == "revoke_console_session":
            Visitor(api).sign_in(api.admin_key)
            newest = api.call("GET", "/v1/console/sessions?limit=1").body[0]
            path = f"/v1/console/sessions/{newest['session_id']}"
        path += REQUIRED_QUERY.get(route.name, "")
        answer = api.call(route.method, path, bodies.get(route.name))
        assert answer.status == route.status, (route.name, answer.raw)
        assert answer.headers["Content-Type"].startswith(route.content_type)
        if route.response_type is not None:
            if route.content_type != "application/json":
                answer = api.call(route.method, path, headers={"Accept": "application/json"})
                assert answer.headers["Content-Type"] == "application/json"
            check_declared(route, answer)


def test_every_field_and_parameter_has_a_description() -> None:
    lacking = [
        f"{path} {method}: {each['name']}"
        for path, method, operation in operations()
        for each in operation["parameters"]
        if not each.get("description")
    ]
    schemas = list(DOCUMENT["components"]["schemas"].items())
    for path, method, operation in operations():
        if "requestBody" in operation:
            media = operation["requestBody"]["content"]["application/json"]
            schemas.append((f"{path} {method}", media["schema"]))
    for where, schema in schemas:
        members = schema.get("properties", {}).items()
        lacking += [f"{where}.{name}" for name, member in members if not member.get("description")]
    assert not lacking


def test_every_name_of_the_table_of_descriptions_is_in_the_document() -> None:
    names = {each["name"] for _, _, operation in operations() for each in operation["parameters"]}
    for schema in DOCUMENT["components"]["schemas"].values():
        names |= schema.get("properties", {}).keys()
    for _, _, operation in operations():
        if "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            names |= schema.get("properties", {}).keys()
    assert not FIELDS.keys() - names


@pytest.mark.deep(stands_in="test_every_name_of_the_table_of_descriptions_is_in_the_document")
def test_every_entry_of_the_table_of_descriptions_is_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By two types or more. The sentence of a single field stands at the field."""
    users: dict[str, set[str]] = {}

    def noted(type_name: str, schema: dict[str, Any]) -> None:
        for name, member in schema.get("properties", {}).items():
            if "description" not in member:
                users.setdefault(name, set()).add(type_name)
        describe_fields(type_name, schema)

    monkeypatch.setattr(openapi_responses, "describe_fields", noted)
    describe(ROUTES, __version__)
    of_records = {each.shown for each in fields.FIELDS}
    assert not [name for name in FIELDS.keys() - of_records if len(users.get(name, ())) < 2]
