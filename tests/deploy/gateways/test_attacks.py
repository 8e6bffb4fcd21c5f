"""Attacks through real gateways, each started with its recipe's files, before a real sidecar."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.gateways import recipes
from tests.deploy.gateways.conftest import Gateways
from tests.deploy.gateways.gateway_programs import STARTED, gateway
from tests.deploy.gateways.hostile_requests import check_what_passes
from tests.deploy.gateways.probes import IDENTITY, PROBES, spoken_for
from tests.deploy.gateways.protected import Protected
from tests.deploy.gateways.raw_requests import get, one, status
from tests.runner import tiers
from tests.support import documents

WITH_OWN_PAGE = ("nginx",)
"""Gateways that answer a denial with a page of their own, and Sluice's headers."""


@pytest.mark.parametrize("name", STARTED)
def test_an_allowed_request_arrives_unchanged_and_a_denied_one_does_not(
    name: str, world: Protected, gateways: Gateways
) -> None:
    port = gateways.port(name)
    world.upstream.take()
    allowed = one(port, get("/info/a%20b?q=1&r=%2F", "X-Kept: as it is", "Accept: x/y"))
    assert (status(allowed), allowed.endswith(b"upstream")) == (200, True)
    (seen,) = world.upstream.take()
    assert (seen.method, seen.target) == ("GET", "/info/a%20b?q=1&r=%2F")
    assert seen.all("x-kept") == ["as it is"]
    assert seen.all("accept") == ["x/y"]
    assert world.unjudged([seen]) == []
    event = world.event(seen)
    assert event["source_type"] == recipes.sidecar(name)["doors"][0]["name"]
    denied = one(port, get("/admin"))
    written = one(port, get("/info/a", method="DELETE"))
    assert (status(denied), status(written)) == (403, 403)
    for answer in (denied, written):
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"\r\nx-sluice-decision: deny\r\n" in head.lower()
        (event_id,) = re.findall(rb"\r\nx-sluice-event-id: ([0-9a-f-]+)", head, re.IGNORECASE)
        assert (b'"event_id":"%b"' % event_id in body) == (name not in WITH_OWN_PAGE)
    assert world.upstream.take() == []


@pytest.mark.deep(stands_in="test_no_probe_gets_past_a_whole_recipe")
@pytest.mark.parametrize("name", STARTED)
def test_headers_of_a_client_do_not_decide(name: str, world: Protected, gateways: Gateways) -> None:
    port = gateways.port(name)
    fields = [each.format(key=world.others_key) for each in IDENTITY]
    world.upstream.take()
    for field in fields:
        assert status(one(port, get("/admin", field))) == 403, field
        assert status(one(port, get("/other/a", field))) == 403, field
    assert world.upstream.take() == []
    for field in fields:
        assert status(one(port, get("/info/a", field))) == 200, field
    seen = world.upstream.take()
    assert len(seen) == len(fields)
    assert world.unjudged(seen) == []
    assert [each for each in seen if spoken_for(world.event(each))] == []


@pytest.mark.deep(stands_in="test_no_probe_gets_past_a_whole_recipe")
@pytest.mark.parametrize("name", STARTED)
def test_the_upstream_gets_only_judged_requests(
    name: str, world: Protected, gateways: Gateways
) -> None:
    check_what_passes(world, gateways.port(name))


@pytest.mark.parametrize("name", STARTED)
def test_no_probe_gets_past_a_whole_recipe(name: str, world: Protected, gateways: Gateways) -> None:
    port = gateways.port(name)
    assert [each for each, probe in PROBES.items() if probe(world, port)] == []


@tiers.rotating(0, 12)
@pytest.mark.parametrize(
    ("name", "number", "line"),
    [
        pytest.param(name, number, line, id=f"{name}-{number}-{line}")
        for name in STARTED
        for number, line in recipes.safety(name)
        if line in PROBES  # `test_bodies.py` has the others
    ],
)
def test_without_a_safety_line_its_probe_gets_past(
    name: str, number: int, line: str, world: Protected, tmp_path: Path
) -> None:
    with gateway(name, tmp_path, world.behind, recipes.Change(number)) as port:
        assert PROBES[line](world, port)


def test_the_paths_of_the_readme_are_answered_as_documented(
    world: Protected, gateways: Gateways
) -> None:
    port, script = gateways.port("nginx"), documents.commands("deploy/gateways/README.md", "ask")
    asked = re.findall(r'^curl -i "\$GATEWAY(/\S*)" +# (\d+),', script, re.MULTILINE)
    assert [code for _, code in asked] == ["200", "403"]
    for path, code in asked:
        assert status(one(port, get(path))) == int(code)
