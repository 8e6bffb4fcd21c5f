"""Agents' own clients read from a vector store and a file server through one sidecar, in two ways.
At the end, the log holds exactly what was decided, and the file server's own log holds nothing that
was denied."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromadb
import pytest
import requests

from tests.stories.test_chroma import NEAREST, chroma
from tests.support.origins import Origin, nginx
from tests.support.ports import free_port
from tests.support.stack import Service, Stack
from tests.support.waiting import AWAY, until

__all__ = ["chroma"]

POLICIES = """\
policies:
  - name: support-reads
    agent_role: support
    allowed_sources: [handbook, rest://files/files/*]
    denied_sources: [payroll, rest://files/files/secret*]
    max_sensitivity: high
"""
ROOT = "chroma://kb/default_tenant/default_database"


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Origin]:
    (tmp_path / "nginx").mkdir()
    with nginx(tmp_path / "nginx") as origin:
        (tmp_path / "nginx" / "files" / "secret.txt").write_text("secret")
        yield origin


@pytest.fixture
def stack(tmp_path: Path, chroma: Service, files: Origin) -> Iterator[Stack]:
    levels = {"handbook": "low", "payroll": "critical"}
    names = {f"{ROOT}/{name}": {"source_id": name, "sensitivity": levels[name]} for name in levels}
    kinds = {"kb": ("chroma", chroma.port, names), "files": ("rest", files.port, {})}
    sources = [
        {
            "alias": alias,
            "kind": kind,
            "upstream": f"http://127.0.0.1:{port}",
            "listen": f"127.0.0.1:{free_port()}",
            "sensitivity": "medium",
            "names": named,
        }
        for alias, (kind, port, named) in kinds.items()
    ]
    (tmp_path / "stack").mkdir()
    made = Stack(tmp_path / "stack", policies=POLICIES, sources=sources)
    made.sidecar.environ["SLUICE_SIDECAR_FORWARD_PROXY"] = f"127.0.0.1:{free_port()}"
    try:
        yield made.start()
    finally:
        made.stop()


def found(stack: Stack, event_id: str) -> dict[str, Any]:
    """The lineage of a retrieval, once it is recorded."""

    def actions() -> Any:
        return stack.admin("GET", f"/v1/audit/lineage/{event_id}")["actions"]

    until("the retrieval is noted", actions, despite=AWAY)
    [action] = actions()
    return dict(action)


def test_the_log_has_every_decision_and_no_source_saw_a_denied_request(
    stack: Stack, files: Origin
) -> None:
    kb, listen = (int(each["listen"].rpartition(":")[2]) for each in stack.sources)
    proxy = f"http://{stack.sidecar.environ['SLUICE_SIDECAR_FORWARD_PROXY']}"

    agent = chromadb.HttpClient("127.0.0.1", kb)
    handbook = agent.get_collection("handbook", embedding_function=None)
    assert handbook.query(**NEAREST)["documents"] == [["of the handbook"]]  # type: ignore[arg-type]
    with pytest.raises(Exception, match="`denied_sources`"):
        agent.get_collection("payroll", embedding_function=None)

    read, refused = {}, set()
    ways: list[tuple[int, dict[str, str]]] = [(listen, {}), (files.port, {"http": proxy})]
    for port, proxies in ways:
        base = f"http://127.0.0.1:{port}/files"
        with requests.Session() as session:
            answer = session.get(f"{base}/a.txt", proxies=proxies, stream=True, timeout=10)
            read[answer.headers["X-Sluice-Event-Id"]] = answer.raw.read()
            answer = session.get(f"{base}/secret.txt", proxies=proxies, timeout=10)
            assert answer.status_code == 403
            refused.add(answer.json()["decision"]["event_id"])
    elsewhere = requests.get("http://elsewhere.test/", proxies={"http": proxy}, timeout=10)
    refused.add(elsewhere.json()["decision"]["event_id"])

    for event_id in refused | read.keys():
        stack.wait_shipped(event_id)
    events = list(stack.events())
    assert Counter((event["decision"], event["source_id"]) for event in events) == {
        ("ALLOW", "handbook"): 2,
        ("DENY", "payroll"): 1,
        ("ALLOW", "rest://files/files/a.txt"): 2,
        ("DENY", "rest://files/files/secret.txt"): 2,
        ("DENY", "http://elsewhere.test:80"): 1,
    }
    for event_id, body in read.items():
        detail = found(stack, event_id)["detail"]
        assert detail["bytes"] == len(body)
        assert detail["sha256"] == hashlib.sha256(body).hexdigest()
    report = stack.verify()
    assert (report["valid"], report["events"]) == (True, len(events))
    seen = files.log.read_text()
    assert seen.count("GET /files/a.txt") == 2
    assert "secret" not in seen
