"""The chart refuses values that it does not know or can't use, and says which."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
import yaml

from tests.deploy.helm.chart import CERTIFICATE, CHART, DEV, Refused, Values, template

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
KEY = "-----BEGIN " + "PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": 2}, "additional properties 'replicas' not allowed"),
        ({"control": {"replica": 2}}, "additional properties 'replica' not allowed"),
        ({"injection": {"engine": "istio"}}, "must be one of 'webhook', 'policy'"),
        ({"injection": {"mode": "Explicit"}}, "must be one of 'explicit', 'transparent'"),
        ({"injection": {"options": ["Log Level"]}}, "/injection/options/0"),
        ({"injection": {"dataSize": "0"}}, "/injection/dataSize"),
        ({"certificates": "none"}, "must be one of 'self', 'cert-manager', 'secret'"),
        ({"certificates": "cert-manager"}, "/certManager/issuerName"),
        ({"certificates": "secret"}, "/webhook/caBundle"),
        ({"identity": "none"}, "must be one of 'workload', 'secret'"),
        ({"issuers": []}, "/issuers"),
        ({"issuers": [{"issuer": "https://a", "jwks": "x", "tenant": "t"}]}, "/issuers/0/jwks"),
        ({"issuers": [{"issuer": "https://a,b=c", "jwks": "/f", "tenant": "t"}]}, "issuers/0"),
        ({"control": {"database": "mysql"}}, "must be one of 'postgresql', 'sqlite'"),
        ({"control": {"database": "sqlite"}}, "/control/replicas"),
        ({"control": {"databaseUrl": {"secretName": ""}}}, "/control/databaseUrl/secretName"),
        ({"control": {"databaseUrl": "postgresql+asyncpg://a:b@c/d"}}, "want object"),
        (
            {"control": {"databasePooled": True, "migrateDatabaseUrl": {"secretName": ""}}},
            "/control/migrateDatabaseUrl/secretName",
        ),
        ({"control": {"replicas": 0}}, "/control/replicas"),
        (
            {"control": {"databaseCa": {"configMapName": "a", "secretName": "b"}}},
            "/control/databaseCa/secretName",
        ),
        ({"control": {"environment": {"PATH": "/x"}}}, "/control/environment"),
        ({"control": {"consoleUrl": "sluice.example"}}, "/control/consoleUrl"),
        ({"control": {"policies": {"../x/y.yaml": ""}}}, "/control/policies"),
        ({"control": {"policies": {"default/rules.yaml": ""}}}, "/control/policies"),
        ({"control": {"tls": {"ca": KEY}}}, "/control/tls/ca"),
        ({"control": {"tls": {"certManager": True}}}, "/certManager/issuerName"),
        ({"webhook": {"timeoutSeconds": 30}}, "/webhook/timeoutSeconds"),
        ({"images": {"control": {"digest": "sha256:abc"}}}, "/images/control/digest"),
        ({"defaultSources": [{"alias": "kb"}]}, "missing properties 'kind', 'upstream'"),
        ({"authzen": {"signing_key_file": "a.pem"}}, "signing_key_file"),
        ({"authzen": {"actions": [{"task": "a"}]}}, "missing property 'name'"),
        ({"monitoring": {"rules": "yes"}}, "want boolean"),
    ],
)
def test_unusable_values_are_refused(values: Values, said: str) -> None:
    with pytest.raises(Refused) as raised:
        template(values)
    assert said in str(raised.value)


def objects(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every part of the schema that describes an object with properties."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield path, schema
        for key, value in schema.items():
            yield from objects(value, f"{path}/{key}")
    elif isinstance(schema, list):
        for index, value in enumerate(schema):
            yield from objects(value, f"{path}/{index}")


def test_the_schema_allows_no_unknown_key() -> None:
    # Helm sets `global`. What a source and a rule of AuthZEN may hold besides, the sidecar checks.
    rules = {f"/properties/authzen/properties/{each}/items" for each in ("resources", "actions")}
    open_ones = {"/properties/global", "/definitions/source", *rules}
    parts = [(path, each.get("additionalProperties", True)) for path, each in objects(SCHEMA)]
    found = [path for path, others in parts if others is True]
    assert {*found} == open_ones


def test_every_default_is_described_by_the_schema_and_a_comment() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    assert {*VALUES} == {*SCHEMA["properties"]} - {"global"}
    for part in ("injection", "control", "webhook", "jobs", "networkPolicies", "monitoring"):
        assert {*VALUES[part]} == {*SCHEMA["properties"][part]["properties"]}, part
    # Each part begins with a comment above it.
    for number, line in enumerate(lines):
        if re.match(r"[a-zA-Z]+:", line):
            above = lines[number - 1]
            assert above.startswith("#") or above == "", line
            assert above or lines[number - 2], line


USABLE: list[Values] = [
    {"control": {"tls": {"secretName": "sluice-tls", "ca": CERTIFICATE}}},
    {"issuers": [], "identity": "secret"},
    {"global": {"anything": 1}},
    yaml.safe_load(DEV.read_text()),
]


def test_usable_values_fit_the_schema() -> None:
    schema = jsonschema_rs.Draft7Validator(SCHEMA)
    for values in USABLE:
        assert schema.is_valid(laid_over(VALUES, values)), values
    assert not schema.is_valid(laid_over(VALUES, {"control": {"replica": 1}}))


def laid_over(values: Values, others: Values) -> Values:
    """As helm does: mappings by member, everything else replaced."""
    found = dict(values)
    for key, value in others.items():
        old = found.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        found[key] = laid_over(old or {}, value) if both else value
    return found


@pytest.mark.deep(stands_in="test_usable_values_fit_the_schema")
def test_usable_values_are_accepted() -> None:
    template({"control": {"tls": {"secretName": "sluice-tls", "ca": CERTIFICATE}}})
    template({"issuers": [], "identity": "secret"})
    template({"global": {"anything": 1}})
    template({}, DEV)


def test_an_older_kubernetes_is_refused() -> None:
    with pytest.raises(Refused, match="incompatible with Kubernetes"):
        template({}, version="1.28")
