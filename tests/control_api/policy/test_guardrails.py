"""Guardrails over the API and in files: no write breaks one, and a refused one changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from policies.analysis.guardrails import GuardedRoles
from policies.analysis.names import TooManyClasses
from tests.support.control_api import POLICIES, Answer, ControlApi, running_control_api
from tests.support.waiting import until

BODY: dict[str, Any] = {
    "name": "claims",
    "agent_role": "claims",
    "allowed_sources": ["claims-*"],
    "denied_sources": [],
    "max_sensitivity": "medium",
}
RULE: dict[str, Any] = {"name": "no-payroll", "never": {"sources": ["payroll*"]}}
ALWAYS: dict[str, Any] = {
    "name": "support-reads-the-handbook",
    "always": {
        "roles": ["support"],
        "sources": ["handbook"],
        "levels": ["low"],
        "tasks": ["absent"],  # it is denied for marketing
    },
}


def refused(answer: Answer, guardrail: str) -> dict[str, Any]:
    """The counterexample of an answer that refuses to break this guardrail."""
    assert answer.status == 409, answer.raw
    details = json.loads(answer.body["details"])
    assert details.keys() == {"guardrail", "counterexample"}
    assert details["guardrail"] == guardrail
    assert f"`{guardrail}`" in answer.body["message"]
    found: dict[str, Any] = details["counterexample"]
    return found


def in_force(api: ControlApi) -> Any:
    """Everything that a refused write must leave alone."""
    return (
        api.admin("GET", "/v1/policies"),
        api.admin("GET", "/v1/guardrails"),
        api.admin("GET", "/v1/audit/verify")["total"],
        api.admin("GET", "/v1/sidecars/policy-set?since=0")["documents"],
    )


def rules_file(api: ControlApi) -> Path:
    return api.directory / "policies" / "default" / "guardrails.yaml"


@pytest.fixture
def unwatched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """No watcher: files are read only on request, so a test sees its own reload."""

    async def never(self: Any) -> None:
        await self._stopping.wait()

    monkeypatch.setattr("control_api.policy.reload.PolicyDirectory.watch", never)
    with running_control_api(tmp_path) as api:
        yield api


@pytest.mark.deep(stands_in="test_each_change_of_a_guardrail_is_in_the_log")
def test_a_guardrail_is_created_shown_replaced_and_deleted(either_tenant: ControlApi) -> None:
    answer = either_tenant.call("POST", "/v1/guardrails", RULE)
    assert answer.status == 201
    made = answer.body
    assert made["never"]["sources"] == ["payroll*"]
    assert made["never"]["roles"] is made["always"] is made["file"] is None
    assert made["source"] == "api"
    path = "/v1/guardrails/no-payroll"
    assert either_tenant.admin("GET", path) == made
    assert either_tenant.admin("GET", "/v1/guardrails") == [made]
    assert either_tenant.call("POST", "/v1/guardrails", RULE).status == 409
    # What was shown can be sent back, and changes nothing.
    total = either_tenant.verified()["total"]
    again = either_tenant.admin("PUT", path, {"never": made["never"], "always": None})
    assert again == made
    assert either_tenant.verified()["total"] == total
    changed = either_tenant.admin("PUT", path, {"never": {"levels": ["critical"]}})
    assert changed["never"]["sources"] is None
    assert changed["created_at"] == made["created_at"] < changed["updated_at"]
    assert either_tenant.admin("DELETE", path) == {}
    assert (
        either_tenant.call("DELETE", path).status == either_tenant.call("GET", path).status == 404
    )
    assert either_tenant.call("PUT", path, {"never": RULE["never"]}).status == 404
    either_tenant.verified()


def test_each_change_of_a_guardrail_is_in_the_log(either_tenant: ControlApi) -> None:
    made = either_tenant.call("POST", "/v1/guardrails", RULE)
    path = "/v1/guardrails/no-payroll"
    assert (made.status, made.body["source"]) == (201, "api")
    assert either_tenant.admin("GET", path) == made.body
    assert either_tenant.admin("GET", "/v1/guardrails") == [made.body]
    assert either_tenant.call("POST", "/v1/guardrails", RULE).status == 409
    changed = either_tenant.admin("PUT", path, {"never": {"levels": ["critical"]}})
    assert changed["never"]["sources"] is None
    assert changed["created_at"] == made.body["created_at"] < changed["updated_at"]
    # What was shown can be sent back, and changes nothing.
    again = {name: changed[name] for name in ("never", "always")}
    assert either_tenant.admin("PUT", path, again) == changed
    assert either_tenant.admin("DELETE", path) == {}
    for method, body in (("GET", None), ("DELETE", None), ("PUT", again)):
        assert either_tenant.call(method, path, body).status == 404
    found = either_tenant.admin("GET", "/v1/audit/changes?object_type=guardrail")
    assert [each["action"] for each in found] == ["deleted", "updated", "created"]
    assert {each["object_id"] for each in found} == {"no-payroll"}
    assert found[1]["before"]["never"]["sources"] == ["payroll*"]
    assert found[1]["after"]["never"]["levels"] == ["critical"]
    assert found[0]["after"] is None is found[2]["before"]


@pytest.mark.parametrize(
    "body",
    [
        {"name": "g"},
        {"name": "g", "never": {}, "always": {"roles": ["r"]}},
        {"name": "", "never": {}},
        {"name": "g", "never": {"source": ["a"]}},
        {"name": "g", "never": {"sources": []}},
        {"name": "g", "never": {"sources": [""]}},
        {"name": "g", "never": {"levels": ["hgh"]}},
        {"name": "g", "never": {"tasks": ["pay*"]}},
        {"name": "g", "always": {"sources": ["a"]}},
        {"name": "g", "always": {"roles": ["a*"]}},
        {"name": "g", "never": {"sources": ["a"] * 1001}},
    ],
)
def test_a_guardrail_that_no_file_may_define_is_422(api: ControlApi, body: dict[str, Any]) -> None:
    assert api.call("POST", "/v1/guardrails", body).status == 422
    assert api.admin("GET", "/v1/guardrails") == []


@pytest.mark.deep(
    stands_in="tests/control_api/console/test_guardrails.py::test_a_guardrail_that_policies_in_force_break_is_refused"
)
def test_a_guardrail_that_is_broken_already_is_refused(either_tenant: ControlApi) -> None:
    before = in_force(either_tenant)
    rule = {"name": "g", "never": {"sources": ["hand*"], "agents": ["absent"]}}
    found = refused(either_tenant.call("POST", "/v1/guardrails", rule), "g")
    assert either_tenant.evaluate(**found)["decision"] == "ALLOW"
    missing = {"name": "g", "always": {"roles": ["auditor"], "sources": ["handbook"]}}
    found = refused(either_tenant.call("POST", "/v1/guardrails", missing), "g")
    assert found["agent_role"] == "auditor"
    total = either_tenant.verified()["total"]
    assert either_tenant.call("PUT", "/v1/guardrails/g", {"never": {}}).status == 404
    assert either_tenant.verified()["total"] == total
    assert in_force(either_tenant)[0::3] == before[0::3]
    either_tenant.admin("POST", "/v1/guardrails", RULE)
    before = in_force(either_tenant)
    path = "/v1/guardrails/no-payroll"
    refused(either_tenant.call("PUT", path, {"never": {"roles": ["sup*"]}}), "no-payroll")
    assert in_force(either_tenant) == before


def test_each_write_of_a_policy_that_breaks_a_guardrail_is_refused(tenant: ControlApi) -> None:
    tenant.admin("POST", "/v1/guardrails", RULE)
    fields = {"name": "reads", "agent_role": "reader", "allowed_sources": ["handbook"]}
    kept = tenant.admin("POST", "/v1/policies", {**BODY, **fields})["policy_id"]
    described = {"roles": ["reader"], "sources": ["handbook"], "levels": ["low"]}
    tenant.admin("POST", "/v1/guardrails", {"name": "reader-reads", "always": described})
    claims = tenant.admin("POST", "/v1/policies", BODY)["policy_id"]
    wide = {**BODY, "name": "x", "allowed_sources": ["*"]}
    guarded = {**wide, "name": "guarded", "agent_role": "other", "denied_sources": ["payroll*"]}
    other = tenant.admin("POST", "/v1/policies", guarded)["policy_id"]
    before = in_force(tenant)
    for method, path, body, guardrail in (
        ("POST", "", wide, "no-payroll"),
        ("PUT", f"/{claims}", wide, "no-payroll"),
        ("PUT", f"/{other}", {**guarded, "denied_sources": []}, "no-payroll"),
        ("DELETE", f"/{kept}", None, "reader-reads"),
        # A policy that moves to another role is gone from its own.
        ("PUT", f"/{kept}", {**BODY, "name": "moved"}, "reader-reads"),
    ):
        refused(tenant.call(method, f"/v1/policies{path}", body), guardrail)
    assert in_force(tenant) == before


@pytest.mark.deep(stands_in="test_each_write_of_a_policy_that_breaks_a_guardrail_is_refused")
def test_no_write_of_a_policy_breaks_a_guardrail(either_tenant: ControlApi) -> None:
    either_tenant.admin("POST", "/v1/guardrails", RULE)
    either_tenant.admin("POST", "/v1/guardrails", ALWAYS)
    (filed,) = either_tenant.admin("GET", "/v1/policies")
    claims = either_tenant.admin("POST", "/v1/policies", BODY)["policy_id"]
    before = in_force(either_tenant)
    bad = {**BODY, "name": "x", "allowed_sources": ["*"]}

    found = refused(either_tenant.call("POST", "/v1/policies", bad), "no-payroll")
    assert found["agent_role"] == "claims"
    assert found["source_id"].startswith("payroll")
    refused(either_tenant.call("PUT", f"/v1/policies/{claims}", bad), "no-payroll")
    found = refused(
        either_tenant.call("DELETE", f"/v1/policies/{filed['policy_id']}"), ALWAYS["name"]
    )
    assert found == {
        "agent_role": "support",
        "user_id": "example-user",
        "source_id": "handbook",
        "sensitivity_level": "low",
    }
    # A policy that moves to another role is gone from its own.
    moved = {**BODY, "name": "support-reads"}
    path = f"/v1/policies/{filed['policy_id']}"
    refused(either_tenant.call("PUT", path, moved), ALWAYS["name"])
    assert in_force(either_tenant) == before
    # A denial that protects, and what takes it away.
    allowed = {**bad, "denied_sources": ["payroll*"]}
    guarded = either_tenant.admin("POST", "/v1/policies", allowed)["policy_id"]
    refused(either_tenant.call("PUT", f"/v1/policies/{guarded}", bad), "no-payroll")
    either_tenant.admin("DELETE", f"/v1/policies/{guarded}")
    either_tenant.verified()


@pytest.mark.deep(
    stands_in="tests/control_api/policy/test_policy_lifecycle.py::test_a_restored_policy_equals_the_one_of_its_file"
)
def test_a_restored_policy_keeps_the_guardrails(unwatched: ControlApi) -> None:
    api = unwatched
    (filed,) = api.admin("GET", "/v1/policies")
    path = f"/v1/policies/{filed['policy_id']}"
    api.admin("DELETE", path)
    api.admin("POST", "/v1/guardrails", {"name": "g", "never": {"sources": ["contracts"]}})
    before = in_force(api)
    found = refused(api.call("POST", f"{path}/restore"), "g")
    assert found["source_id"] == "contracts"
    assert in_force(api) == before
    api.admin("DELETE", "/v1/guardrails/g")
    api.admin("POST", f"{path}/restore")
    assert api.evaluate(**found)["decision"] == "ALLOW"


def test_files_that_break_a_guardrail_of_the_api_change_nothing_now_or_at_a_start(
    unwatched: ControlApi,
) -> None:
    api = unwatched
    api.admin("POST", "/v1/guardrails", RULE)
    before = in_force(api)
    api.policy_file.with_name("other.yaml").write_text(POLICIES.replace("support", "clean"))
    open_to_all = POLICIES.replace("denied_sources: [payroll]", "denied_sources: []")
    api.policy_file.write_text(open_to_all.replace("contracts", "payroll-eu"))
    answer = api.call("POST", "/v1/policies/reload")
    assert refused(answer, "no-payroll")["source_id"] == "payroll-eu"
    assert "default/demo/support.yaml:2: " in answer.body["message"]
    assert in_force(api) == before
    api.restart()
    assert in_force(api) == before
    assert api.evaluate()["decision"] == "ALLOW"


@pytest.mark.deep(
    stands_in="test_files_that_break_a_guardrail_of_the_api_change_nothing_now_or_at_a_start"
)
def test_a_reload_that_breaks_a_guardrail_of_the_api_changes_nothing(
    unwatched: ControlApi,
) -> None:
    api = unwatched
    api.admin("POST", "/v1/guardrails", RULE)
    before = in_force(api)
    other = api.policy_file.with_name("other.yaml")
    other.write_text(POLICIES.replace("support", "clean"))
    api.policy_file.write_text(
        POLICIES.replace("denied_sources: [payroll]", "denied_sources: []").replace(
            "contracts", "payroll-eu"
        )
    )
    answer = api.call("POST", "/v1/policies/reload")
    found = refused(answer, "no-payroll")
    assert found["source_id"] == "payroll-eu"
    assert "default/demo/support.yaml:2: " in answer.body["message"]
    assert in_force(api) == before
    # The same files are refused at a start too; what was in force stays so.
    api.restart()
    assert in_force(api) == before
    assert api.evaluate()["decision"] == "ALLOW"
    api.policy_file.write_text(POLICIES)
    assert api.admin("POST", "/v1/policies/reload")["added"] == ["clean-reads"]


FILE = """\
guardrails:
  - name: no-payroll
    never: {sources: ["payroll*"]}
"""


@pytest.mark.deep(
    stands_in="test_a_new_tenant_s_files_that_break_its_own_guardrails_are_not_loaded"
)
def test_guardrails_of_a_file_are_in_force_and_only_the_file_changes_them(
    unwatched: ControlApi,
) -> None:
    api = unwatched
    rules_file(api).write_text(FILE)
    api.admin("POST", "/v1/policies/reload")
    (rule,) = api.admin("GET", "/v1/guardrails")
    assert (rule["source"], rule["file"]) == ("file", "default/guardrails.yaml")
    path = "/v1/guardrails/no-payroll"
    for answer in (api.call("PUT", path, {"never": {}}), api.call("DELETE", path)):
        assert answer.status == 409
        assert "default/guardrails.yaml" in answer.body["message"]
    bad = {**BODY, "allowed_sources": ["*"]}
    refused(api.call("POST", "/v1/policies", bad), "no-payroll")
    # A reload of the same file is no change.
    total = api.verified()["total"]
    api.admin("POST", "/v1/policies/reload")
    assert api.verified()["total"] == total
    rules_file(api).write_text(FILE.replace("payroll*", "payroll"))
    api.admin("POST", "/v1/policies/reload")
    (rule,) = api.admin("GET", "/v1/guardrails")
    assert rule["never"]["sources"] == ["payroll"]
    rules_file(api).unlink()
    api.admin("POST", "/v1/policies/reload")
    assert api.admin("GET", "/v1/guardrails") == []
    api.admin("POST", "/v1/policies", bad)
    found = api.admin("GET", "/v1/audit/changes?object_type=guardrail")
    assert [each["action"] for each in found] == ["deleted", "updated", "created"]
    api.verified()


@pytest.mark.deep(
    stands_in="test_a_new_tenant_s_files_that_break_its_own_guardrails_are_not_loaded"
)
def test_a_file_of_guardrails_that_is_broken_already_is_refused_as_a_whole(
    unwatched: ControlApi,
) -> None:
    api = unwatched
    before = in_force(api)
    api.policy_file.with_name("other.yaml").write_text(POLICIES.replace("support", "new"))
    rules_file(api).write_text(FILE + "  - name: g\n    always: {roles: [auditor]}\n")
    answer = api.call("POST", "/v1/policies/reload")
    assert refused(answer, "g")["agent_role"] == "auditor"
    assert "default/guardrails.yaml:4: " in answer.body["message"]
    assert in_force(api) == before
    rules_file(api).write_text("guardrails: [{name: g}]\n")
    answer = api.call("POST", "/v1/policies/reload")
    assert answer.status == 422
    assert "default/guardrails.yaml:1: needs `never` or `always`" in answer.body["details"]
    assert in_force(api) == before
    # A policy and the guardrail that it needs may come together.
    rules_file(api).write_text("guardrails:\n  - {name: g, always: {roles: [new], sources: [a]}}\n")
    assert refused(api.call("POST", "/v1/policies/reload"), "g")["sensitivity_level"] == "critical"
    api.policy_file.with_name("other.yaml").write_text(
        POLICIES.replace("support", "new")
        .replace("handbook", "a")
        .replace("high", "critical")
        .replace("    denied_tasks: [marketing]\n", "")
    )
    assert api.admin("POST", "/v1/policies/reload")["added"] == ["new-reads"]


def test_a_file_can_t_take_the_name_of_a_guardrail_of_the_api(unwatched: ControlApi) -> None:
    api = unwatched
    api.admin("POST", "/v1/guardrails", RULE)
    rules_file(api).write_text(FILE)
    answer = api.call("POST", "/v1/policies/reload")
    assert answer.status == 422
    assert answer.body["details"].startswith("default/guardrails.yaml:2: name: `no-payroll` is")
    (rule,) = api.admin("GET", "/v1/guardrails")
    assert rule["source"] == "api"


@pytest.mark.deep(
    stands_in="test_a_new_tenant_s_files_that_break_its_own_guardrails_are_not_loaded"
)
def test_the_watcher_loads_guardrails_and_refuses_what_breaks_them(either: ControlApi) -> None:
    rules_file(either).write_text(FILE)
    until("the guardrails are loaded", lambda: either.admin("GET", "/v1/guardrails"))
    bad = POLICIES.replace("[payroll]", "[]").replace("contracts", "payroll")
    either.policy_file.write_text(bad)

    def refused_once() -> bool:
        text = either.call("GET", "/metrics", key=None).raw.decode()
        return 'sluice_policy_reloads_total{outcome="refused"} ' in text

    until("the policy set is refused", refused_once)
    assert either.evaluate(source_id="payroll")["decision"] == "DENY"
    assert either.evaluate()["decision"] == "ALLOW"
    either.restart()
    assert either.evaluate(source_id="payroll")["decision"] == "DENY"
    either.verified()


def test_a_policy_that_is_too_much_to_analyse_is_refused(
    tenant: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant.admin("POST", "/v1/guardrails", RULE)
    before = in_force(tenant)

    def too_much(*_: object, **__: object) -> None:
        raise TooManyClasses("too much")

    with monkeypatch.context() as patch:
        patch.setattr(GuardedRoles, "counterexample", too_much)
        answer = tenant.call("POST", "/v1/policies", BODY)
    assert answer.status == 409
    assert "can't be checked, and nothing was changed" in answer.body["message"]
    # What the analysis itself gives up.
    defaults = GuardedRoles.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "steps", 3)
    wild = {**BODY, "allowed_sources": ["pay*"], "denied_sources": ["payroll*"]}
    answer = tenant.call("POST", "/v1/policies", wild)
    assert answer.status == 409
    assert "can't be checked, and nothing was changed" in answer.body["message"]
    assert in_force(tenant) == before


@pytest.mark.deep(stands_in="test_a_policy_that_is_too_much_to_analyse_is_refused")
def test_a_policy_that_can_t_be_analysed_is_refused_and_never_skipped(
    either_tenant: ControlApi,
) -> None:
    either_tenant.admin("POST", "/v1/guardrails", RULE)
    before = in_force(either_tenant)
    wild = [f"*{'?' * at}a{'?' * (20 - at)}b*" for at in range(20)]
    hard = {**BODY, "allowed_sources": wild, "denied_sources": ["payroll*"]}
    answer = either_tenant.call("POST", "/v1/policies", hard)
    assert answer.status == 409
    assert "can't be checked, and nothing was changed" in answer.body["message"]
    assert in_force(either_tenant) == before


def test_guardrails_belong_to_one_tenant(fresh: ControlApi) -> None:
    fresh.admin("POST", "/v1/guardrails", RULE)
    made = fresh.call("POST", "/v1/admin/tenants", {"name": "acme"}).body
    key = made["admin_key"]
    assert fresh.call("GET", "/v1/guardrails", key=key).body == []
    assert fresh.call("GET", "/v1/guardrails/no-payroll", key=key).status == 404
    wide = {**BODY, "allowed_sources": ["*"]}
    assert fresh.call("POST", "/v1/policies", wide, key=key).status == 201


def test_a_new_tenant_s_files_that_break_its_own_guardrails_are_not_loaded(
    fresh: ControlApi,
) -> None:
    """The tenant exists, denies everything, and its files load once they are repaired."""
    made = fresh.call("POST", "/v1/admin/tenants", {"name": "acme"}).body
    folder = fresh.directory / "policies" / made["tenant_id"]
    (folder / "demo").mkdir(parents=True)
    (folder / "guardrails.yaml").write_text(FILE.replace("payroll*", "handbook"))
    (folder / "demo" / "a.yaml").write_text(POLICIES)
    answer = fresh.call("POST", "/v1/policies/reload", key=made["admin_key"])
    refused(answer, "no-payroll")
    assert fresh.call("GET", "/v1/policies", key=made["admin_key"]).body == []
    assert fresh.call("GET", "/v1/guardrails", key=made["admin_key"]).body == []
    # The watcher loads what is repaired; only the file changes its guardrails. One of them needs
    # the policy that comes with it.
    needed = "  - {name: reads, always: {roles: [support], sources: [contracts], levels: [high],\n"
    needed += "     tasks: [absent]}}\n"
    (folder / "guardrails.yaml").write_text(FILE + needed)

    def rules() -> Any:
        return fresh.call("GET", "/v1/guardrails", key=made["admin_key"]).body

    until("its guardrails", rules)
    loaded = rules()
    assert [each["source"] for each in loaded] == ["file"] * 2
    # One more that what is in force breaks already: none of the file is taken.
    broken = "  - {name: g, always: {roles: [auditor]}}\n"
    narrow = FILE.replace("payroll*", "payroll")
    (folder / "guardrails.yaml").write_text(narrow + needed + broken)
    answer = fresh.call("POST", "/v1/policies/reload", key=made["admin_key"])
    assert refused(answer, "g")["agent_role"] == "auditor"
    assert rules() == loaded
    path = "/v1/guardrails/no-payroll"
    for method, body in (("PUT", {"never": {}}), ("DELETE", None)):
        answer = fresh.call(method, path, body, key=made["admin_key"])
        assert (answer.status, "guardrails.yaml" in answer.body["message"]) == (409, True)
    bad = {**BODY, "allowed_sources": ["*"]}
    refused(fresh.call("POST", "/v1/policies", bad, key=made["admin_key"]), "no-payroll")
    (folder / "guardrails.yaml").write_text(FILE.replace("payroll*", "payroll"))
    until("one is left", lambda: len(rules()) == 1)
    assert rules()[0]["never"]["sources"] == ["payroll"]
    (folder / "demo" / "a.yaml").write_text(POLICIES.replace("[payroll]", "[]") + "\n")
    (folder / "guardrails.yaml").unlink()
    until("none is left", lambda: not rules())
