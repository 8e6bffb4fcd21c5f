"""Policies from files: all or nothing, versions, user changes that stay, and the watcher."""

from __future__ import annotations

import re
import shutil
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from control_api.policy import plan
from control_api.policy import reload as policy_reload
from tests.support.control_api import POLICIES, ControlApi, asked, running_control_api
from tests.support.waiting import until

ONE = """\
  - {name: NAME, agent_role: ROLE, allowed_sources: ["*"], denied_sources: [],
     max_sensitivity: critical}
"""


def definitions(*pairs: tuple[str, str]) -> str:
    lines = [ONE.replace("NAME", name).replace("ROLE", role) for name, role in pairs]
    return "policies:\n" + "".join(lines) if lines else "policies: []\n"


@pytest.fixture
def unwatched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """No watcher: files are read only on request, so a test sees its own reload."""

    async def never(self: Any) -> None:
        await self._stopping.wait()

    monkeypatch.setattr("control_api.policy.reload.PolicyDirectory.watch", never)
    with running_control_api(tmp_path) as api:
        yield api


def reload(api: ControlApi) -> dict[str, Any]:
    answer: dict[str, Any] = api.admin("POST", "/v1/policies/reload")
    assert answer.pop("status") == "reloaded"
    return answer


def rows(api: ControlApi, query: str) -> list[Any]:
    with sqlite3.connect(api.directory / "data" / "sluice.db") as database:
        return database.execute(query).fetchall()


@pytest.mark.deep(stands_in="test_each_change_is_a_version_and_a_record_and_no_change_leaves_none")
def test_a_reload_lists_the_policies_it_added_updated_and_removed(
    unwatched: ControlApi, caplog: pytest.LogCaptureFixture
) -> None:
    line = "tenant `default` has no policies now: everything is denied by `default_deny`"
    nothing: dict[str, Any] = {
        "added": [],
        "updated": [],
        "unchanged": [],
        "removed": [],
        "skipped": [],
        "warnings": [],
    }
    assert reload(unwatched) == {**nothing, "unchanged": ["support-reads"]}
    unwatched.policy_file.write_text(POLICIES.replace("high", "low") + ONE.replace("NAME", "new"))
    assert reload(unwatched) == {**nothing, "added": ["new"], "updated": ["support-reads"]}
    assert unwatched.evaluate(sensitivity_level="medium")["decision"] == "DENY"
    unwatched.policy_file.write_text(definitions(("new", "ROLE")))
    assert reload(unwatched) == {**nothing, "unchanged": ["new"], "removed": ["support-reads"]}
    assert unwatched.evaluate()["policy_name"] == "default_deny"
    assert line not in caplog.messages
    shutil.rmtree(unwatched.policy_file.parent)
    assert reload(unwatched) == {**nothing, "removed": ["new"]}
    assert unwatched.admin("GET", "/v1/policies") == []
    assert reload(unwatched) == nothing
    assert [each.levelname for each in caplog.records if each.message == line] == ["WARNING"]
    unwatched.verified()


def test_each_change_is_a_version_and_a_record_and_no_change_leaves_none(
    unwatched: ControlApi,
) -> None:
    first = unwatched.admin("GET", "/v1/policies")[0]
    total = unwatched.verified()["total"]
    assert reload(unwatched)["unchanged"] == ["support-reads"]
    assert unwatched.admin("GET", "/v1/policies") == [first]
    assert unwatched.verified()["total"] == total
    unwatched.policy_file.write_text(POLICIES.replace("high", "low"))
    nothing: dict[str, list[str]] = {
        name: [] for name in ("added", "unchanged", "removed", "skipped", "warnings")
    }
    assert reload(unwatched) == {**nothing, "updated": ["support-reads"]}
    asking = asked(sensitivity_level="medium")
    assert unwatched.admin("POST", "/v1/context/simulate", asking)["decision"] == "DENY"
    second = unwatched.admin("GET", f"/v1/policies/{first['policy_id']}")
    assert (first["version"], second["version"]) == (1, 2)
    assert second["user_modified"] is False
    assert second["created_at"] == first["created_at"] < second["updated_at"]
    unwatched.policy_file.unlink()
    assert reload(unwatched)["removed"] == ["support-reads"]
    assert unwatched.evaluate()["policy_name"] == "default_deny"
    assert unwatched.call("GET", f"/v1/policies/{first['policy_id']}").status == 404
    history = rows(unwatched, "SELECT version, change FROM policy_versions ORDER BY version")
    assert history == [(1, "added"), (2, "updated"), (3, "removed")]
    assert unwatched.verified()["events"] == 1
    assert unwatched.verified()["total"] == total + 3
    # One that comes back is a new policy.
    unwatched.policy_file.write_text(POLICIES)
    assert reload(unwatched)["added"] == ["support-reads"]
    (again,) = unwatched.admin("GET", "/v1/policies")
    assert (again["policy_id"] != first["policy_id"], again["version"]) == (True, 1)


@pytest.mark.deep(stands_in="test_refused_files_are_listed_until_they_are_corrected")
def test_one_bad_file_changes_nothing_and_is_named_with_line_and_key(unwatched: ControlApi) -> None:
    before = unwatched.admin("GET", "/v1/policies")
    total = unwatched.verified()["total"]
    unwatched.policy_file.write_text(definitions(("good", "good")))
    bad = unwatched.policy_file.with_name("bad.yaml")
    bad.write_text("policies:\n  - name: x\n    denied_surces: []\n")
    answer = unwatched.call("POST", "/v1/policies/reload")
    assert answer.status == 422
    lines = answer.body["details"].splitlines()
    assert any(line.startswith("default/demo/bad.yaml:3: denied_surces: ") for line in lines)
    assert any("agent_role: is required" in line for line in lines)
    assert unwatched.admin("GET", "/v1/policies") == before
    assert unwatched.verified()["total"] == total
    assert unwatched.evaluate()["decision"] == "ALLOW"
    bad.unlink()
    assert reload(unwatched)["added"] == ["good"]


def test_a_policy_that_a_user_modified_or_deleted_is_skipped(unwatched: ControlApi) -> None:
    unwatched.policy_file.write_text(POLICIES + ONE.replace("NAME", "deleted"))
    reload(unwatched)
    with sqlite3.connect(unwatched.directory / "data" / "sluice.db") as database:
        database.execute("UPDATE policies SET user_modified = 1 WHERE name = 'support-reads'")
        database.execute("UPDATE policies SET deleted_at = 1 WHERE name = 'deleted'")
    unwatched.policy_file.write_text(definitions(("support-reads", "other"), ("deleted", "x")))
    assert reload(unwatched)["skipped"] == ["deleted", "support-reads"]
    assert unwatched.evaluate()["decision"] == "ALLOW"
    (defined,) = rows(unwatched, "SELECT file_body FROM policies WHERE name = 'support-reads'")
    assert b'"agent_role":"other"' in defined[0]
    unwatched.policy_file.unlink()
    assert reload(unwatched)["skipped"] == ["support-reads"]
    assert unwatched.evaluate()["decision"] == "ALLOW"
    assert rows(unwatched, "SELECT file FROM policies WHERE file IS NOT NULL") == []


def test_a_name_that_another_policy_has_is_a_fault_of_the_file(unwatched: ControlApi) -> None:
    with sqlite3.connect(unwatched.directory / "data" / "sluice.db") as database:
        database.execute("UPDATE policies SET file = NULL, file_body = NULL")
    answer = unwatched.call("POST", "/v1/policies/reload")
    assert answer.status == 422
    assert "name of another active policy" in answer.body["details"]


@pytest.mark.deep(stands_in="test_each_change_is_a_version_and_a_record_and_no_change_leaves_none")
def test_a_policy_that_returns_to_its_file_is_a_new_one(unwatched: ControlApi) -> None:
    before = unwatched.admin("GET", "/v1/policies")[0]
    unwatched.policy_file.unlink()
    reload(unwatched)
    unwatched.policy_file.write_text(POLICIES)
    assert reload(unwatched)["added"] == ["support-reads"]
    after = unwatched.admin("GET", "/v1/policies")[0]
    assert after["policy_id"] != before["policy_id"]
    assert after["version"] == 1


def test_a_policy_that_moves_to_another_file_stays_the_same(unwatched: ControlApi) -> None:
    text = POLICIES + "    industry: demo\n    process_group: support\n"
    unwatched.policy_file.write_text(text)
    reload(unwatched)
    (before,) = unwatched.admin("GET", "/v1/policies")
    unwatched.policy_file.rename(unwatched.policy_file.with_name("moved.yaml"))
    assert reload(unwatched)["unchanged"] == ["support-reads"]
    moved = before | {"file": "default/demo/moved.yaml"}
    assert unwatched.admin("GET", "/v1/policies") == [moved]
    assert rows(unwatched, "SELECT file FROM policies") == [("default/demo/moved.yaml",)]


def test_a_policy_that_changes_its_role_leaves_the_one_it_had(unwatched: ControlApi) -> None:
    unwatched.policy_file.write_text(POLICIES.replace("agent_role: support", "agent_role: other"))
    assert reload(unwatched)["updated"] == ["support-reads"]
    assert unwatched.evaluate()["policy_name"] == "default_deny"
    assert unwatched.evaluate(agent_role="other")["decision"] == "ALLOW"


@pytest.mark.deep(stands_in="test_a_directory_that_is_swapped_as_kubernetes_does_is_loaded")
def test_a_change_on_disk_is_in_force_within_two_seconds(either: ControlApi) -> None:
    either.policy_file.write_text(POLICIES.replace("payroll", "handbook"))
    until("the retrieval is denied", lambda: either.evaluate()["decision"] == "DENY")
    temporary = either.policy_file.with_name(".support.yaml.tmp")
    temporary.write_text(POLICIES)
    temporary.rename(either.policy_file)
    until("the retrieval is allowed", lambda: either.evaluate()["decision"] == "ALLOW")
    other = either.policy_file.parent.parent / "other" / "deeper.yaml"
    other.parent.mkdir()
    other.write_text(definitions(("other-reads", "other")))
    until(
        "the retrieval is allowed",
        lambda: either.evaluate(agent_role="other")["decision"] == "ALLOW",
    )
    shutil.rmtree(other.parent)
    until(
        "the retrieval is denied", lambda: either.evaluate(agent_role="other")["decision"] == "DENY"
    )
    either.verified()


@pytest.mark.deep(
    stands_in="tests/stories/test_policy_on_disk.py::test_a_broken_policy_file_changes_nothing_and_a_whole_one_is_in_force"
)
def test_a_bad_file_on_disk_leaves_the_last_good_set_in_force(fresh: ControlApi) -> None:
    fresh.policy_file.write_text("policies: [\n")

    def counted() -> bool:
        text = fresh.call("GET", "/metrics", key=None).raw.decode()
        return 'sluice_policy_reloads_total{outcome="refused"} 1.0' in text

    until("the reload is counted", counted)
    assert fresh.evaluate()["decision"] == "ALLOW"
    assert fresh.call("GET", "/health/ready", key=None).status == 200
    fresh.restart()
    assert fresh.evaluate()["decision"] == "ALLOW"
    assert fresh.call("GET", "/health/ready", key=None).status == 200
    fresh.policy_file.write_text(POLICIES.replace("payroll", "handbook"))
    until("the retrieval is denied", lambda: fresh.evaluate()["decision"] == "DENY")


def test_a_repaired_file_is_logged_once_as_a_recovery(
    fresh: ControlApi, caplog: pytest.LogCaptureFixture
) -> None:
    fresh.policy_file.write_text("policies: [\n")
    until("the fault is told", lambda: "policies of tenant `default` stay as they" in caplog.text)
    assert "recovered: " not in caplog.text
    fresh.policy_file.write_text(POLICIES)
    line = "recovered: the policy files of tenant `default` are in force"
    until("the recovery is told", lambda: line in caplog.messages)
    fresh.policy_file.write_text(POLICIES.replace("payroll", "handbook"))
    until("the retrieval is denied", lambda: fresh.evaluate()["decision"] == "DENY")
    assert caplog.messages.count(line) == 1


def test_a_directory_that_is_swapped_as_kubernetes_does_is_loaded(tmp_path: Path) -> None:
    home = tmp_path / "policies" / "default" / "demo"
    home.mkdir(parents=True)

    def mount(name: str, text: str) -> None:
        (home / name).mkdir()
        (home / name / "support.yaml").write_text(text)
        (home / "..next").symlink_to(name)
        (home / "..next").rename(home / "..data")

    mount("..1", POLICIES)
    (home / "support.yaml").symlink_to("..data/support.yaml")
    with running_control_api(tmp_path, policies=None) as api:
        assert api.evaluate()["decision"] == "ALLOW"
        mount("..2", POLICIES.replace("payroll", "handbook"))
        until("the retrieval is denied", lambda: api.evaluate()["decision"] == "DENY")


def test_filters_and_pages_show_each_policy_once(unwatched: ControlApi) -> None:
    folder = unwatched.policy_file.parent.parent
    for industry in ("banking", "retail"):
        (folder / industry).mkdir()
        for group in ("front", "back"):
            pairs = [(f"{industry}-{group}-{n}", f"role{n}") for n in range(3)]
            (folder / industry / f"{group}.yaml").write_text(definitions(*pairs))
    reload(unwatched)

    def names(query: str) -> list[str]:
        found = [row for page in unwatched.pages(f"/v1/policies?{query}") for row in page]
        assert len({row["policy_id"] for row in found}) == len(found)
        return sorted(row["name"] for row in found)

    assert len(names("limit=4")) == 13
    assert names("industry=banking&limit=2") == sorted(
        f"banking-{group}-{n}" for group in ("front", "back") for n in range(3)
    )
    assert names("industry=retail&process_group=back&agent_role=role1") == ["retail-back-1"]
    assert names("process_group=front&limit=1") == sorted(
        f"{industry}-front-{n}" for industry in ("banking", "retail") for n in range(3)
    )
    assert names("agent_role=nobody") == []


def test_a_tenant_s_files_define_only_its_own_policies(unwatched: ControlApi) -> None:
    other = unwatched.policy_file.parents[2] / "other" / "demo" / "support.yaml"
    other.parent.mkdir(parents=True)
    other.write_text("policies: [")
    assert reload(unwatched)["unchanged"] == ["support-reads"]


@pytest.mark.deep(stands_in="test_an_outdated_plan_is_made_again")
def test_two_replicas_that_see_the_same_change_make_one_version_of_it(either: ControlApi) -> None:
    other = ControlApi(either.directory, policies=None, database_url=database_of(either)).start()
    try:
        for number in range(5):
            either.policy_file.write_text(POLICIES.replace("payroll", f"payroll-{number}"))
            for api in (either, other):
                until("the new file is in force", partial(denies, api, number))
        (policy,) = either.admin("GET", "/v1/policies")
        assert policy["version"] == 6
        either.verified()
    finally:
        other.stop()


def database_of(api: ControlApi) -> str | None:
    return api.environ.get("SLUICE_DATABASE_URL")


def denies(api: ControlApi, number: int) -> bool:
    answer = api.evaluate(source_id=f"payroll-{number}")
    return "denied" in answer["reason"]


def test_an_outdated_plan_is_made_again(
    unwatched: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    async def overtaken(*arguments: Any) -> bool:
        calls.append(arguments)
        return len(calls) > 2

    monkeypatch.setattr(policy_reload, "_is_current", overtaken)
    unwatched.policy_file.write_text(POLICIES.replace("high", "low"))
    assert reload(unwatched)["updated"] == ["support-reads"]
    assert len(calls) == 3
    monkeypatch.undo()
    # Another replica makes the same change between the plan and its check.
    real, others = plan.plan, list[Any]()

    def overtaking(*arguments: Any) -> Any:
        made = real(*arguments)
        if not others:
            others.append(None)
            others.append(reload(unwatched))
        return made

    monkeypatch.setattr(policy_reload, "plan", overtaking)
    unwatched.policy_file.write_text(POLICIES.replace("high", "medium"))
    assert reload(unwatched)["unchanged"] == others[1]["updated"] == ["support-reads"]
    (policy,) = unwatched.admin("GET", "/v1/policies")
    assert policy["version"] == 3

    async def always(*_: Any) -> bool:
        return False

    monkeypatch.setattr(policy_reload, "_is_current", always)
    unwatched.policy_file.write_text(POLICIES)
    assert unwatched.call("POST", "/v1/policies/reload").status == 503


def test_a_folder_of_no_tenant_is_a_warning_that_names_the_nearest(
    fresh: ControlApi, caplog: pytest.LogCaptureFixture
) -> None:
    """They are warnings of a reload by their tenant, and in the log for the operator."""
    acme = fresh.admin("POST", "/v1/admin/tenants", {"name": "acme"})
    root = fresh.policy_file.parents[2]
    for folder in ("defualt", "acme", "somewhere-else", "__pycache__"):
        (root / folder / "demo").mkdir(parents=True)
        (root / folder / "demo" / "x.yaml").write_text(definitions(("x", "x")))
    warned = {
        "policy folder `defualt` belongs to no tenant: did you mean `default`?",
        f"policy folder `acme` belongs to no tenant: did you mean `{acme['tenant_id']}`?",
        "policy folder `somewhere-else` belongs to no tenant",
    }
    # The watcher reports folders that appear while the service runs.
    until("each file is warned of", lambda: warned <= set(caplog.messages))
    caplog.clear()
    assert reload(fresh)["warnings"] == [
        "policy folder `defualt` belongs to no tenant: did you mean `default`?"
    ]
    assert warned <= set(caplog.messages)
    # Beside modules, Python makes such a folder itself.
    assert "__pycache__" not in caplog.text
    answer = fresh.call("POST", "/v1/policies/reload", key=acme["admin_key"])
    assert answer.body["warnings"] == [
        f"policy folder `acme` belongs to no tenant: did you mean `{acme['tenant_id']}`?"
    ]


@pytest.mark.deep(stands_in="test_a_first_start_without_a_policy_directory_has_no_policies")
def test_without_a_policy_directory_policies_of_files_stay(
    tmp_path: Path,
) -> None:
    with running_control_api(tmp_path) as api:
        (before,) = api.admin("GET", "/v1/policies")
    with running_control_api(tmp_path, SLUICE_POLICY_DIR="") as api:
        assert api.admin("GET", "/v1/policies") == [before]
        answer = reload(api)
        assert answer.pop("warnings") == [
            "SLUICE_POLICY_DIR is not set: no policy comes from a file"
        ]
        assert not any(answer.values())
        assert api.admin("GET", "/v1/policies") == [before]
        assert api.evaluate()["decision"] == "ALLOW"


def test_a_first_start_without_a_policy_directory_has_no_policies(tmp_path: Path) -> None:
    with running_control_api(tmp_path, SLUICE_POLICY_DIR="") as api:
        assert api.admin("GET", "/v1/policies") == []
        assert api.evaluate()["policy_name"] == "default_deny"
        # One that a file defined, when there was a directory, stays.
        body = {"name": "filed", "agent_role": "support", "allowed_sources": ["handbook"]}
        body |= {"denied_sources": [], "max_sensitivity": "low"}
        api.admin("POST", "/v1/policies", body)
        with sqlite3.connect(api.directory / "data" / "sluice.db") as database:
            database.execute("UPDATE policies SET file = 'default/a/b.yaml', file_body = body")
        before = api.admin("GET", "/v1/policies")
        answer = reload(api)
        assert answer.pop("warnings") == [
            "SLUICE_POLICY_DIR is not set: no policy comes from a file"
        ]
        assert not any(answer.values())
        assert api.admin("GET", "/v1/policies") == before
        assert api.evaluate(sensitivity_level="low")["policy_name"] == "filed"


def refused_tenants(api: ControlApi) -> float:
    """What `sluice_policy_files_refused` says."""
    text = api.call("GET", "/metrics", key=None).raw.decode()
    (sample,) = re.findall(r"^sluice_policy_files_refused (\S+)$", text, re.MULTILINE)
    return float(sample)


def test_refused_files_are_listed_until_they_are_corrected(unwatched: ControlApi) -> None:
    path = "/v1/policies/files"
    assert unwatched.admin("GET", path) == {"watched": True, "refused_at": None, "faults": []}
    assert refused_tenants(unwatched) == 0
    before, total = unwatched.admin("GET", "/v1/policies"), unwatched.verified()["total"]
    good = unwatched.policy_file.with_name("good.yaml")
    good.write_text(definitions(("good", "good")))
    unwatched.policy_file.write_text("policies: [{name: bad}]")
    bad = unwatched.policy_file.with_name("bad.yaml")
    bad.write_text("policies:\n  - name: x\n    denied_surces: []\n")
    answer = unwatched.call("POST", "/v1/policies/reload")
    assert answer.status == 422
    shown = unwatched.admin("GET", path)
    assert shown["refused_at"] is not None
    assert "default/demo/support.yaml:1: agent_role: is required" in shown["faults"]
    assert any(each.startswith("default/demo/bad.yaml:3: denied_sur") for each in shown["faults"])
    assert answer.body["details"].splitlines() == shown["faults"]
    assert unwatched.admin("GET", "/v1/policies") == before
    assert unwatched.verified()["total"] == total
    # As after a restart, which reads them anew.
    unwatched.restart()
    assert unwatched.admin("GET", path)["faults"] == shown["faults"]
    assert refused_tenants(unwatched) == 1
    bad.unlink()
    unwatched.policy_file.write_text(POLICIES)
    assert reload(unwatched)["added"] == ["good"]
    assert unwatched.admin("GET", path)["refused_at"] is None
    assert refused_tenants(unwatched) == 0
    # A folder that was renamed by mistake withdraws nothing; an empty one does.
    folder = unwatched.policy_file.parent.parent
    folder.rename(folder.with_name("defualt"))
    assert unwatched.call("POST", "/v1/policies/reload").status == 422
    [fault] = unwatched.admin("GET", path)["faults"]
    assert fault.startswith("default: the folder is gone, and with it 2 policies and 0 guardrails")
    assert unwatched.evaluate()["decision"] == "ALLOW"
    assert refused_tenants(unwatched) == 1
    folder.mkdir()
    assert reload(unwatched)["removed"] == ["good", "support-reads"]
    assert refused_tenants(unwatched) == 0
