"""The official scenario at the levels Basic, Batch, Search and Discovery, against a real control
API and a real sidecar, set up by the files and the commands of `deploy/authzen-certification/`."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import sys
from collections.abc import Iterator
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from tests.sidecar.authzen import scenario
from tests.sidecar.authzen.scenario import Batch, Decided, Found
from tests.support.documents import commands, paste, put
from tests.support.ports import free_port
from tests.support.stack import ROOT, Service, Stack
from tests.support.waiting import AWAY, until

FOLDER = ROOT / "deploy" / "authzen-certification"
README = "deploy/authzen-certification/README.md"
URL = "https://localhost:8710"
JSON = "application/json"


class Answered(NamedTuple):
    status: int
    headers: Any
    body: Any


class DecisionPoint:
    """The sidecar, as the certification's harness reaches it."""

    def __init__(self, port: int, folder: Path) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=str(folder / "tls.crt"))
        self._key = (folder / "pdp.key").read_text().strip()

    def ask(
        self, path: str, body: bytes | None = None, content_type: str = JSON, **headers: str
    ) -> Answered:
        connection = HTTPSConnection("localhost", self._port, context=self._context, timeout=30)
        sent = {"Authorization": f"Bearer {self._key}", **headers}
        if body is not None:
            sent["Content-Type"] = content_type
        try:
            connection.request("GET" if body is None else "POST", path, body, sent)
            answer: HTTPResponse = connection.getresponse()
            assert answer.headers["Content-Type"].partition(";")[0] == JSON
            return Answered(answer.status, answer.headers, json.loads(answer.read()))
        finally:
            connection.close()

    def post(self, path: str, body: Any, **headers: str) -> Answered:
        return self.ask(path, json.dumps(body).encode(), **headers)

    def found(self, path: str, body: Any) -> list[str]:
        """The ids or names of a search's results."""
        answer = self.post(path, body)
        assert answer.status == 200, answer
        assert next(iter(answer.body)) == "page"
        results = answer.body["results"]
        if path != scenario.ACTION:
            searched = body["subject" if path == scenario.SUBJECT else "resource"]["type"]
            assert all(each["type"] == searched for each in results)
        return [each["name" if path == scenario.ACTION else "id"] for each in results]


@pytest.fixture(scope="module")
def pdp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DecisionPoint]:
    """The decision point, made as the README says."""
    folder = tmp_path_factory.mktemp("certification")
    stack = Stack(folder / "centre", policies="policies: []\n")
    control = f"http://127.0.0.1:{stack.control.port}"
    shutil.copytree(FOLDER, folder / "pdp")
    put(folder / "bin", "sluice", f'#!/bin/sh\nexec "{sys.executable}" -m deploy.command "$@"\n')
    try:
        stack.start_control()
        (folder / "admin.key").write_text(stack.admin_key)
        (folder / "admin.key").chmod(0o600)
        environ = {
            **os.environ,
            "PATH": f"{folder}/bin:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "SLUICE_URL": control,
            "SLUICE_KEY_FILE": str(folder / "admin.key"),
        }
        for title in ("policies and agents", "keys and certificates"):
            done = paste(commands(README, title), folder / "pdp", environ)
            assert done.returncode == 0, done.stderr
        port = free_port()
        sidecar = Service(
            "sidecar",
            [sys.executable, "-m", "sidecar", "--config", str(folder / "pdp" / "sidecar.yaml")],
            {"SLUICE_SIDECAR_CONTROL": control, "SLUICE_SIDECAR_LISTEN": f"127.0.0.1:{port}"},
            folder / "sidecar.log",
            port,
        )
        try:
            sidecar.start(ready=False)
            point = DecisionPoint(port, folder / "pdp")
            until("it is ready", lambda: point.ask("/health/ready").status == 200, despite=AWAY)
            yield point
        finally:
            sidecar.stop()
    finally:
        stack.control.stop()


@pytest.mark.deep(stands_in="test_context_and_the_id_of_the_searched_type_change_no_result")
def test_the_readme_s_commands_set_up_the_certification(pdp: DecisionPoint) -> None:
    assert pdp.ask("/health/ready").body["status"] == "ready"


@pytest.mark.parametrize("case", scenario.DECIDED, ids=lambda case: case.section)
def test_basic_questions_are_decided(pdp: DecisionPoint, case: Decided) -> None:
    for _ in range(2):  # "2.6": the same each time
        answer = pdp.post(scenario.EVALUATION, case.body)
        assert (answer.status, answer.body["decision"]) == (200, case.decision), answer


def test_basic_echoes_the_request_id(pdp: DecisionPoint) -> None:
    body = scenario.DECIDED[0].body
    answer = pdp.post(scenario.EVALUATION, body, **{"X-Request-ID": "scenario-2.5.1"})
    assert answer.headers["X-Request-ID"] == "scenario-2.5.1"
    assert pdp.post(scenario.EVALUATION, body).status == 200


@pytest.mark.parametrize("at", range(len(scenario.REFUSED)))
def test_a_required_member_that_is_missing_or_has_another_form(pdp: DecisionPoint, at: int) -> None:
    path, body = scenario.REFUSED[at]
    assert pdp.post(path, body).status == 400


@pytest.mark.parametrize(("content_type", "body"), scenario.UNREADABLE)
def test_an_unreadable_basic_question_is_refused(
    pdp: DecisionPoint, content_type: str, body: bytes
) -> None:
    assert pdp.ask(scenario.EVALUATION, body, content_type).status == 400


@pytest.mark.parametrize("case", scenario.BATCHES, ids=lambda case: case.section)
def test_a_batch_is_decided_in_order(pdp: DecisionPoint, case: Batch) -> None:
    answer = pdp.post(scenario.EVALUATIONS, case.body)
    assert answer.status == 200, answer
    assert list(answer.body) == ["evaluations"]
    decisions = [each["decision"] for each in answer.body["evaluations"]]
    assert len(decisions) == len(case.decisions)
    for made, expected in zip(decisions, case.decisions, strict=True):
        assert type(made) is bool
        assert expected is None or made == expected


@pytest.mark.parametrize("body", scenario.BACKWARDS_COMPATIBLE)
def test_batch_without_evaluations_is_a_single_one(
    pdp: DecisionPoint, body: dict[str, Any]
) -> None:
    answer = pdp.post(scenario.EVALUATIONS, body)
    assert (answer.status, answer.body["decision"]) == (200, True)


@pytest.mark.parametrize("case", scenario.FOUND, ids=lambda case: case.section)
def test_searches_find_the_expected_results(pdp: DecisionPoint, case: Found) -> None:
    assert set(case.includes) <= set(pdp.found(case.path, case.body))


@pytest.mark.parametrize("sections", scenario.SAME)
def test_context_and_the_id_of_the_searched_type_change_no_result(
    pdp: DecisionPoint, sections: tuple[str, ...]
) -> None:
    cases = [case for case in scenario.FOUND if case.section in sections]
    assert len(cases) == len(sections)
    first, *others = [pdp.found(case.path, case.body) for case in cases]
    assert all(other == first for other in others)


@pytest.mark.parametrize("at", range(len(scenario.EMPTY)))
def test_search_without_results_is_empty(pdp: DecisionPoint, at: int) -> None:
    assert pdp.found(*scenario.EMPTY[at]) == []


def test_search_results_are_paged(pdp: DecisionPoint) -> None:
    body = scenario.USERS | scenario.READ | scenario.ONE
    first = pdp.post(scenario.SUBJECT, body | {"page": {"limit": 1}}).body
    assert first["results"] == [{"type": "user", "id": "alice"}]
    token = first["page"]["next_token"]
    assert token
    rest = pdp.post(scenario.SUBJECT, body | {"page": {"token": token}}).body
    assert rest["results"] == [{"type": "user", "id": "bob"}]
    assert rest["page"] == {"next_token": "", "count": 1, "total": 2}


def test_the_metadata_document_names_the_endpoints_and_is_signed(pdp: DecisionPoint) -> None:
    answer = pdp.ask("/.well-known/authzen-configuration")
    assert answer.status == 200
    members = answer.body
    assert members["policy_decision_point"] == URL
    for name, path in {
        "access_evaluation_endpoint": scenario.EVALUATION,
        "access_evaluations_endpoint": scenario.EVALUATIONS,
        "search_subject_endpoint": scenario.SUBJECT,
        "search_resource_endpoint": scenario.RESOURCE,
        "search_action_endpoint": scenario.ACTION,
    }.items():
        assert members[name] == URL + path
    assert members["jwks_uri"] == f"{URL}/.well-known/jwks.json"
    keys = KeySet.import_key_set(pdp.ask("/.well-known/jwks.json").body)
    signed = jwt.decode(members["signed_metadata"], keys, algorithms=["ES256"])
    assert signed.claims["iss"] == URL
