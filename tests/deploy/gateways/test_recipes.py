"""The recipes as documents: complete, of documented fields, and such that they fail closed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import jsonschema_rs
import kubernetes_validate
import pytest
import yaml

from policies.ground.keys import make_key
from sidecar.config import file as settings_file
from tests.deploy.gateways import recipes
from tests.deploy.gateways.documented_fields import FIELDS, INGRESS_ANNOTATIONS
from tests.deploy.gateways.gateway_programs import STARTED
from tests.deploy.gateways.probes import PROBES
from tests.deploy.gateways.test_bodies import SAFETY
from tests.deploy.gateways.test_judged_host import SAFETY as HOST_SAID
from tests.support.certificates import authority

OVERVIEW = (recipes.FOLDER / "README.md").read_text("utf-8")
DOORS = [door for name in recipes.names() for door in recipes.sidecar(name)["doors"]]


def documents(name: str, file: str) -> list[Any]:
    return list(yaml.safe_load_all((recipes.FOLDER / name / file).read_text("utf-8")))


def test_every_recipe_is_started_or_checked_and_in_the_overview() -> None:
    assert sorted([*STARTED, *FIELDS]) == recipes.names()
    assert [name for name in recipes.names() if f"({name}/README.md)" not in OVERVIEW] == []
    for name in STARTED:
        row = next(line for line in OVERVIEW.splitlines() if f"({name}/README.md)" in line)
        assert "| run it |" in row


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_documents_the_rules(name: str) -> None:
    readme = (recipes.FOLDER / name / "README.md").read_text("utf-8")
    assert "#rules-for-every-gateway" in readme
    assert "overwrite every header" in readme
    assert "forward the path that was judged" in readme
    assert "only way to the upstream" in readme
    rows = ("A denial", "Sluice is away", "A new key")
    assert [each for each in rows if f"\n| {each} | " not in readme] == []
    assert "](../README.md#the-gateways-key)" in readme


@pytest.mark.parametrize(
    ("name", "file"), [(name, file) for name, found in FIELDS.items() for file in found]
)
def test_a_document_has_only_documented_fields_and_fails_closed(name: str, file: str) -> None:
    schemas = FIELDS[name][file]
    assert {each.name for each in recipes.files(name)} == FIELDS[name].keys()
    for document, schema in zip(documents(name, file), schemas, strict=True):
        jsonschema_rs.validate(schema, json.loads(json.dumps(document)))


def test_the_schemas_refuse_an_open_gateway() -> None:
    for name, file, old, new in (
        ("istio", "mesh.yaml", "failOpen: false", "failOpen: true"),
        ("envoy-gateway", "security-policy.yaml", "failOpen: false", "failOpen: true"),
        ("apisix", "apisix.yaml", "allow_degradation: false", "allow_degradation: true"),
        ("mcp", "agentgateway.yaml", "failureMode: {denyWithStatus: 503}", "failureMode: allow"),
        ("kong", "kong.yaml", "strip_path: false", "strip_path: true"),
    ):
        text = (recipes.FOLDER / name / file).read_text("utf-8")
        assert old in text
        (opened, *_) = yaml.safe_load_all(text.replace(old, new))
        assert not jsonschema_rs.is_valid(FIELDS[name][file][0], opened), name


def test_the_ingress_is_valid_for_kubernetes() -> None:
    ingress, *maps = documents("ingress-nginx", "ingress.yaml")
    for each in (ingress, *maps):
        kubernetes_validate.validate(each, "1.34", strict=True)
    annotations = ingress["metadata"]["annotations"]
    assert annotations.keys() == INGRESS_ANNOTATIONS
    by_name = {f"{m['metadata']['namespace']}/{m['metadata']['name']}": m for m in maps}
    check = by_name[annotations["nginx.ingress.kubernetes.io/auth-proxy-set-headers"]]["data"]
    controller = by_name["ingress-nginx/ingress-nginx-controller"]["data"]
    upstream = by_name[controller["proxy-set-headers"]]["data"]
    for header in ("X-Sluice-User", "X-Sluice-Session", "X-Sluice-Task", "X-Sluice-Sensitivity"):
        assert check[header] == upstream[header] == ""
    assert (check["baggage"], upstream["X-API-Key"]) == ("", "")


def test_the_doors_have_different_names_and_need_a_key_or_a_certificate() -> None:
    names = [door["name"] for door in DOORS]
    assert len(set(names)) == len(names)
    for door in DOORS:
        near = str(door.get("listen", "")).startswith("127.0.0.1:")
        assert door["key"] == "required" or near or door["listen_tls"]["client_ca"], door


@pytest.mark.parametrize("name", recipes.names())
def test_a_sidecar_accepts_the_settings_of_a_recipe(name: str, tmp_path: Path) -> None:
    for file in ("sidecar.key", "agent.key"):
        (tmp_path / file).write_text(make_key(os.urandom(32)))
    trusted = authority("gateways")
    pair = trusted.issue("sluice.crm.svc")
    for door in recipes.sidecar(name)["doors"]:
        made = {"certificate": pair.certificate, "key": pair.key, "client_ca": trusted.path}
        for key, file in door.get("listen_tls", {}).items():
            shutil.copy(made[key], tmp_path / file)
    agent = {"role": "edge_reader", "key_file": "agent.key"}
    whole = {"control": "http://127.0.0.1:8700", "key_file": "sidecar.key", "agent": agent}
    (tmp_path / "sidecar.yaml").write_text(yaml.safe_dump({**whole, **recipes.sidecar(name)}))
    read = settings_file.read(tmp_path / "sidecar.yaml", {}, "host")
    added = recipes.sidecar(name)
    assert [each.name for each in read.doors] == [door["name"] for door in added["doors"]]
    assert [each.alias for each in read.sources] == [each["alias"] for each in added["sources"]]


@pytest.mark.parametrize("name", STARTED)
def test_each_safety_line_has_a_probe(name: str) -> None:
    found = {line for _, line in recipes.safety(name)}
    assert "check" in found
    assert found <= PROBES.keys() | {SAFETY, HOST_SAID}
