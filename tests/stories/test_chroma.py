"""An agent's own Chroma client, with only its port changed, and the whole system behind it."""

import http.client
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import chromadb
import pytest

from tests.support.ports import free_port
from tests.support.stack import Service, Stack, call, running_stack
from tests.support.waiting import AWAY, until

POINT: list[Sequence[float]] = [[1.0, 0.0]]
NEAREST = {"query_embeddings": [[1.0, 0.0]], "n_results": 1}


@pytest.fixture
def chroma(tmp_path: Path) -> Iterator[Service]:
    port = free_port()
    program = str(Path(sys.executable).with_name("chroma"))
    place = ["--path", str(tmp_path / "chroma"), "--host", "127.0.0.1", "--port", str(port)]
    server = Service("chroma", [program, "run", *place], {}, tmp_path / "chroma.log", port)
    server.start(ready=False)
    try:
        heartbeat = "/api/v2/heartbeat"
        until("chroma is up", lambda: call(port, "GET", heartbeat)[0] == 200, despite=AWAY)
        direct = chromadb.HttpClient("127.0.0.1", port)
        for name in ("handbook", "payroll"):
            made = direct.create_collection(name, embedding_function=None)
            made.add(ids=["1"], documents=[f"of the {name}"], embeddings=POINT)
        yield server
    finally:
        server.kill()


@pytest.fixture
def behind(tmp_path: Path, chroma: Service) -> Iterator[tuple[Stack, int]]:
    """The stack, and the port that the agent uses as Chroma's."""
    port = free_port()
    root = "chroma://kb/default_tenant/default_database"
    names = {
        f"{root}/{name}": {"source_id": name, "sensitivity": level}
        for name, level in (("handbook", "low"), ("payroll", "critical"))
    }
    source = {
        "alias": "kb",
        "kind": "chroma",
        "upstream": f"http://127.0.0.1:{chroma.port}",
        "listen": f"127.0.0.1:{port}",
        "sensitivity": "medium",
        "names": names,
    }
    (tmp_path / "stack").mkdir()
    with running_stack(tmp_path / "stack", sources=[source]) as stack:
        yield stack, port


def raw(port: int, path: str, body: Any) -> tuple[int, bytes, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    sent = json.dumps(body)
    connection.request("POST", path, sent, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = answer.status, answer.read(), answer.getheader("X-Sluice-Event-Id")
    connection.close()
    return found


def test_allowed_and_denied_queries_of_chroma_are_answered_and_logged(
    chroma: Service, behind: tuple[Stack, int]
) -> None:
    stack, port = behind
    agent = chromadb.HttpClient("127.0.0.1", port)
    handbook = agent.get_collection("handbook", embedding_function=None)
    found = handbook.query(**NEAREST)  # type: ignore[arg-type]
    assert found["documents"] == [["of the handbook"]]
    with pytest.raises(Exception, match="source `payroll` is in `denied_sources`"):
        agent.get_collection("payroll", embedding_function=None)

    database = "/api/v2/tenants/default_tenant/databases/default_database"
    query = f"{database}/collections/{handbook.id}/query"
    direct, through = raw(chroma.port, query, NEAREST), raw(port, query, NEAREST)
    assert through[:2] == direct[:2]
    event_id = through[2]
    assert event_id is not None

    hidden = chromadb.HttpClient("127.0.0.1", chroma.port).get_collection(
        "payroll", embedding_function=None
    )
    status, body, denied_id = raw(port, query.replace(str(handbook.id), str(hidden.id)), NEAREST)
    assert status == 403
    assert json.loads(body)["decision"]["event_id"] == denied_id

    assert denied_id is not None
    stack.wait_shipped(denied_id)
    events = {event["event_id"]: event for event in stack.events()}
    assert (events[event_id]["decision"], events[event_id]["source_id"]) == ("ALLOW", "handbook")
    assert (events[denied_id]["decision"], events[denied_id]["source_id"]) == ("DENY", "payroll")
    assert {event["source_type"] for event in events.values()} == {"chroma"}

    def action() -> dict[str, Any]:
        lineage = stack.admin("GET", f"/v1/audit/lineage/{event_id}")
        return next(iter(lineage["actions"]), {})

    until("the retrieval is noted", action, despite=AWAY)
    assert action()["action_type"] == "retrieval"
    assert action()["outcome"] == "completed"
    assert action()["detail"]["status"] == 200
    assert action()["detail"]["bytes"] == len(through[1])
    assert len(action()["detail"]["sha256"]) == 64
    assert stack.verify()["valid"]
