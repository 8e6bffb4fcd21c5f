"""Who in the fleet has applied a revision, and when, by their own records."""

from __future__ import annotations

import pytest

from policies.trail.record import heartbeat_record
from tests.control_api.fleet.test_fleet import tell
from tests.support.control_api import ControlApi
from tests.support.open_store import Spool, event_id

PATH = "/v1/audit/acknowledgements"


def beat(api: ControlApi, sidecar_id: str, *revisions: int) -> None:
    spool = Spool(source=sidecar_id)
    records = [
        spool.record(heartbeat_record(revision, record_id=event_id())) for revision in revisions
    ]
    body = {"source": sidecar_id, "instance": spool.instance, "records": records}
    api.admin("POST", "/v1/sidecars/events", body)


@pytest.mark.deep(stands_in="test_a_sidecar_has_applied_a_revision_by_its_own_record_or_is_missing")
def test_each_live_sidecar_has_applied_a_revision_or_is_missing(either: ControlApi) -> None:
    api = either
    for name in ("s-1", "s-2", "s-3"):
        tell(api, name)
    beat(api, "s-1", 2, 4)
    beat(api, "s-2", 3)
    shown = api.admin("GET", f"{PATH}?revision=4")
    assert shown["revision"] == 4
    [applied] = shown["applied"]
    assert applied.keys() == {"sidecar_id", "seq", "hash", "at"}
    assert applied["sidecar_id"] == "s-1"
    proven = api.verified()
    assert applied["seq"] == proven["last_seq"] - 1
    missing = [(each["sidecar_id"], each["last_revision"]) for each in shown["missing"]]
    assert missing == [("s-2", 3), ("s-3", None)]
    assert [each["sidecar_id"] for each in api.admin("GET", f"{PATH}?revision=3")["applied"]] == [
        "s-1",
        "s-2",
    ]
    pages = list(api.pages(f"{PATH}?revision=4&limit=2"))
    assert [len(page["applied"]) + len(page["missing"]) for page in pages] == [2, 1]


def test_the_revision_is_a_number_and_by_default_the_newest(api: ControlApi) -> None:
    made = api.call("POST", "/v1/agents", {"agent_id": "agt_new", "agent_role": "r"})
    assert api.admin("GET", PATH)["revision"] == int(made.headers["X-Sluice-Revision"])
    assert api.call("GET", f"{PATH}?revision=x").status == 422
    assert api.admin("GET", f"{PATH}?revision=0") == {"revision": 0, "applied": [], "missing": []}
    assert api.admin("GET", f"{PATH}?revision={10**15 - 1}")["applied"] == []


def test_a_sidecar_has_applied_a_revision_by_its_own_record_or_is_missing(
    api: ControlApi,
) -> None:
    for name in ("own-1", "own-2"):
        tell(api, name)
    beat(api, "own-1", 2, 4)
    beat(api, "own-2", 3)
    shown = api.admin("GET", f"{PATH}?revision=4")
    applied = {each["sidecar_id"]: each["seq"] for each in shown["applied"]}
    missing = {each["sidecar_id"]: each["last_revision"] for each in shown["missing"]}
    assert (applied.get("own-1"), missing.get("own-2")) == (api.verified()["last_seq"] - 1, 3)
    assert not applied.keys() & missing.keys()
    pages = list(api.pages(f"{PATH}?revision=4&limit=1"))
    assert {len(page["applied"]) + len(page["missing"]) for page in pages} == {1}
    listed = [each["sidecar_id"] for page in pages for each in page["applied"] + page["missing"]]
    assert listed == sorted(listed)
    assert {"own-1", "own-2"} <= set(listed)
