"""Proofs over HTTP, checked as somebody would who has nothing but the log's public key."""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from policies.ground.canonical import encode
from policies.ground.signing import Signer
from policies.trail import checkpoint
from policies.trail.checkpoint import Checkpoint
from policies.trail.commitment import opening_matches
from policies.trail.merkle_tree import leaf_hash
from policies.trail.proofs import tree_proofs
from policies.trail.proofs.tree_proofs import TlogProof
from tests.support.control_api import Answer, ControlApi, running_control_api
from tests.support.waiting import until

JSON = {"Accept": "application/json"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    with running_control_api(
        tmp_path_factory.mktemp("proofs"), SLUICE_CHECKPOINT_SECONDS="1"
    ) as started:
        yield started


def read(api: ControlApi, note: str) -> Checkpoint:
    """The note's checkpoint, verified with the log's public key."""
    seed = (api.directory / "data" / "log.key").read_text().splitlines()[0]
    public = Signer(base64.b64decode(seed)).public
    return checkpoint.read(note, note.partition("\n")[0], (public,))


def proof(api: ControlApi, event_id: str, query: str = "", **more: Any) -> Answer:
    """The proof, once a checkpoint covers the event."""
    path, found = f"/v1/audit/proof/{event_id}{query}", list[Answer]()

    def asked() -> bool:
        found.append(api.call("GET", path, **more))
        return found[-1].status != 409

    until("a checkpoint", asked)
    return found[-1]


def test_a_proof_as_text_proves_its_entry_without_anything_personal(api: ControlApi) -> None:
    event = api.evaluate(user_id="ann", query="who pays?")["event_id"]
    answer = proof(api, event)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    found = TlogProof.parse(answer.raw.decode())
    at = read(api, found.note)
    assert found.extra is not None
    assert found.proves(leaf_hash(found.extra), at.size, at.root)
    (shown,) = [each for each in api.events() if each["event_id"] == event]
    assert (leaf_hash(found.extra).hex(), found.index) == (shown["hash"], shown["seq"])
    # Who passes it on passes on nothing personal.
    assert b"who pays?" not in found.extra
    assert b"ann" not in found.extra
    for accept in ("text/plain", "*/*", "application/json;q=0", "", "x,,;"):
        answer = proof(api, event, headers={"Accept": accept})
        assert answer.raw.startswith(b"c2sp.org/tlog-proof@v1\n"), accept


@pytest.mark.parametrize(
    "accept", ["application/json", "text/html, Application/JSON;q=0.5", "application/json , */*"]
)
def test_json_also_has_the_openings(api: ControlApi, accept: str) -> None:
    event = api.evaluate(user_id="ann", query="who pays?")["event_id"]
    answer = proof(api, event, headers={"Accept": accept})
    assert answer.headers["Content-Type"] == "application/json"
    body = answer.body
    assert sorted(body) == ["checkpoint", "entry", "hashes", "index", "openings"]
    # The bytes that were hashed stand in the answer as they are.
    assert encode(body["entry"]) in answer.raw
    at = read(api, body["checkpoint"])
    hashes = [base64.b64decode(each) for each in body["hashes"]]
    leaf = leaf_hash(encode(body["entry"]))
    assert tree_proofs.proves_inclusion(leaf, body["index"], at.size, hashes, at.root)
    assert {path: value for path, (_, value) in body["openings"].items()} == {
        "user_id": "ann",
        "query": "who pays?",
    }
    for path, opening in body["openings"].items():
        assert opening_matches(body["entry"]["cm"], path, opening)


@pytest.mark.deep(stands_in="test_a_proof_as_text_proves_its_entry_without_anything_personal")
@pytest.mark.parametrize("accept", ["text/plain", "*/*", "application/json;q=0", "", "x,,;"])
def test_any_other_accepted_type_gets_the_text(api: ControlApi, accept: str) -> None:
    event = api.evaluate()["event_id"]
    answer = proof(api, event, headers={"Accept": accept})
    assert answer.raw.startswith(b"c2sp.org/tlog-proof@v1\n")


def test_every_kind_of_entry_is_proven_by_its_id(api: ControlApi) -> None:
    event = api.evaluate()["event_id"]
    api.admin("POST", "/v1/audit/lineage", {"event_id": event, "action_type": "sent"})
    with closing(sqlite3.connect(api.directory / "data" / "sluice.db")) as database:
        kinds = dict(database.execute("SELECT kind, eid FROM log_entries"))
    assert {"change", "decision", "lineage"} <= kinds.keys()
    for kind, eid in kinds.items():
        assert proof(api, eid, headers=JSON).body["entry"]["kind"] == kind


def test_growth_is_proven_from_the_first_entry_on(api: ControlApi) -> None:
    until("a checkpoint", lambda: api.call("GET", "/v1/audit/checkpoint").status == 200)
    with closing(sqlite3.connect(api.directory / "data" / "sluice.db")) as database:
        (first,) = database.execute("SELECT entry FROM log_entries WHERE seq = 0").fetchone()
    answer = api.call("GET", "/v1/audit/consistency?from=1").body
    at = read(api, answer["checkpoint"])
    assert (answer["from"], answer["to"]) == (1, at.size)
    hashes = [base64.b64decode(each) for each in answer["hashes"]]
    assert tree_proofs.proves_consistency(1, leaf_hash(first), at.size, at.root, hashes)
    proof(api, api.evaluate()["event_id"])  # a later checkpoint
    answer = api.call("GET", f"/v1/audit/consistency?from={at.size}").body
    later = read(api, answer["checkpoint"])
    assert later.size > at.size
    hashes = [base64.b64decode(each) for each in answer["hashes"]]
    assert tree_proofs.proves_consistency(at.size, at.root, later.size, later.root, hashes)
    kept = api.call("GET", f"/v1/audit/consistency?from=1&to={at.size}").body
    assert read(api, kept["checkpoint"]) == at
    with closing(sqlite3.connect(api.directory / "data" / "sluice.db")) as database:
        (eid,) = database.execute("SELECT eid FROM log_entries WHERE seq = 0").fetchone()
    text = api.call("GET", f"/v1/audit/proof/{eid}?size={at.size}").raw.decode()
    assert read(api, TlogProof.parse(text).note) == at


@pytest.mark.deep(stands_in="test_growth_is_proven_from_the_first_entry_on")
def test_growth_is_proven_from_any_earlier_checkpoint(api: ControlApi) -> None:
    proof(api, api.evaluate()["event_id"])
    kept = read(api, api.call("GET", "/v1/audit/checkpoint").raw.decode())
    proof(api, api.evaluate()["event_id"])
    answer = api.call("GET", f"/v1/audit/consistency?from={kept.size}").body
    assert list(answer) == ["from", "to", "hashes", "checkpoint"]
    at = read(api, answer["checkpoint"])
    assert (answer["from"], answer["to"]) == (kept.size, at.size)
    assert at.size > kept.size
    hashes = [base64.b64decode(each) for each in answer["hashes"]]
    assert tree_proofs.proves_consistency(kept.size, kept.root, at.size, at.root, hashes)
    older = api.call("GET", f"/v1/audit/consistency?from=1&to={kept.size}").body
    assert read(api, older["checkpoint"]) == kept
    event = api.events()[-1]["event_id"]
    text = api.call("GET", f"/v1/audit/proof/{event}?size={kept.size}").raw.decode()
    assert read(api, TlogProof.parse(text).note) == kept


def test_each_refusal_names_its_cause(api: ControlApi) -> None:
    until("a checkpoint", lambda: api.call("GET", "/v1/audit/checkpoint").status == 200)
    expected = {
        "/v1/audit/proof/no-such-event": (404, "no such event"),
        "/v1/audit/proof/x?size=-1": (422, "size: "),
        "/v1/audit/consistency": (422, "from: is required"),
        "/v1/audit/consistency?from=-1": (422, "from: "),
        "/v1/audit/consistency?from=2&to=1": (422, "larger than `to`"),
        "/v1/audit/consistency?from=1&to=999999999": (404, "no checkpoint of 999999999"),
        "/v1/audit/consistency?from=999999999": (409, "rolled back"),
        "/v1/audit/consistency?from=999999999999999": (409, "rolled back"),
        "/v1/audit/consistency?from=99999999999999999999": (422, "from: "),
    }
    for path, (status, words) in expected.items():
        answer = api.call("GET", path)
        assert (answer.status, words in answer.raw.decode()) == (status, True), answer.raw


def test_an_entry_without_a_checkpoint_is_refused_with_409_and_a_time_to_retry(
    tmp_path: Path,
) -> None:
    with running_control_api(tmp_path, SLUICE_CHECKPOINT_SECONDS="3600") as api:
        until("a checkpoint", lambda: api.call("GET", "/v1/audit/checkpoint").status == 200)
        event = api.evaluate()["event_id"]
        answer = api.call("GET", f"/v1/audit/proof/{event}")
        assert answer.status == 409
        assert int(answer.headers["Retry-After"]) > 0
        assert "not covered by a checkpoint yet" in answer.body["message"]
