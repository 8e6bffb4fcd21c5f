"""Search: candidates, keys, pages, statuses; over HTTP and over Redis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policies.definitions.model import Key, TenantSettings
from policies.sets.policy_set import TENANT, tenant_document
from sidecar.authzen.search import handlers
from sidecar.settings.model import NamedSource, Source
from sidecar.settings.sections import ActionRule, AuthzenSettings, ResourceRule
from tests.sidecar.authzen.searching import (
    ADMIN_KEY,
    Client,
    agent,
    keyed,
    policy,
    question,
    role,
    secret,
)
from tests.support.fake_control_api import EVALUATE_KEY, READ_KEY
from tests.support.sidecar import RunningSidecar, running_sidecar

SETTINGS = AuthzenSettings(
    resources=(
        ResourceRule("record", "r-*", {"status": "archived"}, "archive/{id}", "high"),
        ResourceRule("record", "r-*", {}, "records/{id}", "low"),
        ResourceRule("file", "*", {}, "files/{id}/of/{id}", "low"),
        ResourceRule("book", "the-handbook", {}, "handbook", "low"),
        ResourceRule("leaf", "*", {}, "handbook", "low"),
    ),
    actions=(
        ActionRule("read"),
        ActionRule("export", {}, "bulk_export"),
        ActionRule("delete", {"soft": True}, "delete_soft"),
    ),
)
DOCUMENTS = {
    **keyed(ADMIN_KEY, Key("key_a", "admin")),
    **keyed(secret("clerk"), Key("key_c", "evaluate", None, ("clerk",))),
    **keyed(secret("bound"), Key("key_b", "read", "agt_clerk")),
    **agent("agt_clerk", "clerk"),
    **agent("agt_both", "clerk", "auditor"),
    **agent("agt_auditor", "auditor"),
    **agent("agt_late", "auditor", status="suspended"),
    **agent("agt_tied", "auditor", key="key_b"),
    **role(
        "clerk",
        policy(
            "clerk", "records/r-1", "records/r-2", "files/a/of/a", "handbook", max_sensitivity="low"
        ),
    ),
    **role(
        "auditor",
        policy("auditor", "records/r-1", "archive/r-9", "archive/*", "plain", "wiki://home"),
        policy("auditor", "only-auditors/*", name="named", permitted_agent_ids=("agt_auditor",)),
        policy("auditor", name="no_exports", denied_tasks=("bulk_export",)),
    ),
}


@pytest.fixture
def control(control: Any) -> Any:
    control.publish(DOCUMENTS)
    return control


@pytest.fixture
def sidecar_settings() -> dict[str, Any]:
    return {"authzen": SETTINGS}


@pytest.fixture
def admin(sidecar: RunningSidecar) -> Client:
    return Client(sidecar, ADMIN_KEY)


async def test_subjects_are_approved_agents_that_may_in_one_of_their_roles(admin: Client) -> None:
    assert await admin.found("subject", question(resource="r-1")) == [
        "agt_auditor",
        "agt_both",
        "agt_clerk",
    ]
    archived = question(resource="r-9", resource_properties={"status": "archived"})
    assert await admin.found("subject", archived) == ["agt_auditor", "agt_both"]
    answer = await admin.search("subject", archived)
    assert answer["results"][0] == {"type": "agent", "id": "agt_auditor"}


async def test_a_role_that_is_named_is_the_only_one(admin: Client) -> None:
    named = question(resource="r-1", subject_properties={"role": "clerk"})
    assert await admin.found("subject", named) == ["agt_both", "agt_clerk"]
    in_context = question(resource="r-1", context={"agent_role": "clerk"})
    assert await admin.found("subject", in_context) == ["agt_both", "agt_clerk"]
    unusable = question(resource="r-1", subject_properties={"role": None})
    assert await admin.found("subject", unusable) == []


async def test_resources_are_mapped_back_by_their_own_rule(admin: Client) -> None:
    assert await admin.found("resource", question("agt_clerk")) == ["r-1", "r-2"]
    archived = question("agt_auditor", resource_properties={"status": "archived"})
    assert await admin.found("resource", archived) == ["r-9"]
    for kind, found in (
        ("file", ["a"]),
        ("book", ["the-handbook"]),
        ("leaf", []),  # any leaf is the handbook: they can't be listed
        ("source", []),  # no rule says that one is less than critical
        ("spaceship", []),
    ):
        assert await admin.found("resource", question("agt_clerk", resource_type=kind)) == found
    for kind, found in (
        ("wiki", ["home"]),
        ("source", ["archive/r-9", "plain", "records/r-1"]),
    ):
        assert await admin.found("resource", question("agt_auditor", resource_type=kind)) == found


async def test_patterns_are_those_of_policies_that_apply(admin: Client) -> None:
    auditor = await admin.search("resource", question("agt_auditor"))
    assert auditor["context"] == {"patterns": ["archive/*", "only-auditors/*"]}
    both = await admin.search("resource", question("agt_both"))
    assert both["context"] == {"patterns": ["archive/*"]}
    assert "context" not in await admin.search("resource", question("agt_clerk"))
    for unknown in ("agt_late", "agt_tied", "agt_absent"):
        assert "context" not in await admin.search("resource", question(unknown)), unknown


async def test_actions_are_those_of_the_table_without_properties(admin: Client) -> None:
    assert await admin.found("action", question("agt_clerk", resource="r-1")) == ["read", "export"]
    assert await admin.found("action", question("agt_auditor", resource="r-1")) == ["read"]
    ignored = question("agt_clerk", "delete", "r-1")
    assert await admin.found("action", ignored) == ["read", "export"]


async def test_the_id_of_what_is_searched_for_is_ignored(admin: Client) -> None:
    assert len(await admin.found("subject", question("agt_clerk", resource="r-1"))) == 3
    assert await admin.found("resource", question("agt_clerk", resource="r-2")) == ["r-1", "r-2"]


async def test_a_session_of_the_context_is_not_looked_at(admin: Client) -> None:
    body = question(resource="r-1", context={"session_id": "of-another"})
    assert len(await admin.found("subject", body)) == 3
    malformed = question(resource="r-1", context={"session_id": 7})
    assert await admin.found("subject", malformed) == []


async def test_a_search_finds_what_its_key_could_get_itself(sidecar: RunningSidecar) -> None:
    clerk = Client(sidecar, secret("clerk"))
    assert await clerk.found("resource", question("agt_auditor")) == []
    assert await clerk.found("resource", question("agt_both")) == ["r-1", "r-2"]
    answer = await clerk.search("resource", question("agt_both"))
    assert "context" not in answer, "the patterns of a role that this key may not use"
    bound = Client(sidecar, secret("bound"))
    assert await bound.found("subject", question(resource="r-1")) == ["agt_clerk"]
    # Without an agent in the question, the key's.
    of_user = question("ann", resource="r-1", subject_type="user")
    assert await bound.found("action", of_user) == ["read", "export"]
    assert await Client(sidecar, EVALUATE_KEY).found("action", of_user) == []


@pytest.mark.parametrize(
    ("kind", "statuses"),
    [("subject", (403, 200, 200)), ("resource", (200, 200, 200)), ("action", (200, 200, 200))],
)
async def test_each_kind_of_search_needs_its_scope(
    sidecar: RunningSidecar, kind: str, statuses: tuple[int, ...]
) -> None:
    body = question("agt_clerk", "read", "r-1")
    answers = [
        (await Client(sidecar, key).post(f"search/{kind}", body)).status
        for key in (EVALUATE_KEY, READ_KEY, ADMIN_KEY)
    ]
    assert tuple(answers) == statuses
    assert (await Client(sidecar).post(f"search/{kind}", body, key=None)).status == 401


async def test_search_results_are_paged(sidecar: RunningSidecar, admin: Client) -> None:
    body = question(resource="r-1")
    first = await admin.search("subject", body | {"page": {"limit": 2}})
    token = first["page"].pop("next_token")
    assert first["page"] == {"count": 2, "total": 3}
    second = await admin.search("subject", body | {"page": {"token": token, "limit": 2}})
    assert second["page"] == {"next_token": "", "count": 1, "total": 3}
    assert [each["id"] for each in first["results"] + second["results"]] == [
        "agt_auditor",
        "agt_both",
        "agt_clerk",
    ]
    none = await admin.search("subject", body | {"page": {"limit": 0}})
    assert none["results"] == []
    assert none["page"].pop("next_token")
    assert none["page"] == {"count": 0, "total": 3}
    for key, asked, changed in (
        (READ_KEY, "subject", body),
        (ADMIN_KEY, "subject", question(resource="r-2")),
        (ADMIN_KEY, "resource", question("agt_both")),
        (ADMIN_KEY, "subject", body | {"context": {}} | {"action": {"name": "export"}}),
    ):
        page = {"page": {"token": token}}
        refused = await Client(sidecar, key).post(f"search/{asked}", changed | page)
        assert (refused.status, "page.token" in refused.text()) == (400, True)
    other_limit = body | {"page": {"token": token, "limit": 1}}
    assert (await admin.post("search/subject", other_limit)).status == 400


@pytest.mark.parametrize(
    "page",
    [
        None,
        [],
        {"limit": -1},
        {"limit": 1.5},
        {"limit": True},
        {"limit": "1"},
        {"limit": None},
        {"token": None},
        {"token": 1},
        {"token": ""},
        {"token": "made-up"},
        {"properties": None},
        {"properties": []},
    ],
)
async def test_another_form_of_page_is_refused(admin: Client, page: Any) -> None:
    answer = await admin.post("search/subject", question(resource="r-1") | {"page": page})
    assert answer.status == 400
    assert "page" in answer.json()["message"]


async def test_a_limit_beyond_the_greatest_one_counts_as_the_greatest(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert handlers.MAX_RESULTS == 1000
    monkeypatch.setattr(handlers, "MAX_RESULTS", 2)
    body = question(resource="r-1") | {"page": {"limit": 5000, "properties": {}, "other": 1}}
    page = (await admin.search("subject", body))["page"]
    assert (page["count"], page["total"]) == (2, 3)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("subject", {**question(resource="r-1"), "subject": {"id": "agt_clerk"}}),
        ("subject", question(action=None, resource="r-1")),
        ("subject", question("agt_clerk")),
        ("resource", question()),
        ("resource", question("agt_clerk", action=None)),
        ("resource", {**question("agt_clerk"), "resource": {"id": "r-1"}}),
        ("action", question("agt_clerk")),
        ("action", question(resource="r-1")),
        ("action", question("agt_clerk", resource="r-1", context=None)),
        ("action", question("agt_clerk", resource="r-1", subject_properties=[])),
        ("action", b"[]"),
        ("action", b""),
    ],
)
async def test_a_malformed_search_is_refused(admin: Client, kind: str, body: Any) -> None:
    assert (await admin.post(f"search/{kind}", body)).status == 400


async def test_a_search_accepts_only_post_and_is_not_cached(
    admin: Client, sidecar: RunningSidecar
) -> None:
    answer = await sidecar.call("GET", "/access/v1/search/subject", key=ADMIN_KEY)
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    found = await admin.post("search/subject", question(resource="r-1"))
    assert found.headers["Cache-Control"] == "no-store"


async def test_searches_are_counted_and_not_recorded(
    admin: Client, sidecar: RunningSidecar
) -> None:
    before = len(await sidecar.records())
    await admin.found("subject", question(resource="r-1"))
    await admin.found("resource", question("agt_clerk"))
    await admin.found("action", question("agt_clerk", resource="r-1"))
    assert len(await sidecar.records()) == before
    counted = 'sluice_requests_total{operation="authzen_search",status="200"}'
    assert await sidecar.metric(counted) == 3


async def test_a_frozen_tenant_finds_nothing(
    admin: Client, sidecar: RunningSidecar, control: Any
) -> None:
    frozen = TenantSettings("default", frozen_at=1)
    await sidecar.follows(control.publish({TENANT: tenant_document(frozen)}))
    assert await admin.found("subject", question(resource="r-1")) == []
    assert await admin.search("resource", question("agt_auditor")) == {
        "page": {"next_token": "", "count": 0, "total": 0},
        "results": [],
    }


async def test_a_change_is_found_at_once(
    admin: Client, sidecar: RunningSidecar, control: Any
) -> None:
    assert "agt_new" not in await admin.found("subject", question(resource="r-1"))
    await sidecar.follows(control.publish(agent("agt_new", "clerk")))
    assert "agt_new" in await admin.found("subject", question(resource="r-1"))
    await sidecar.follows(control.publish(agent("agt_new", "clerk", status="suspended")))
    assert "agt_new" not in await admin.found("subject", question(resource="r-1"))


async def test_a_sidecar_that_may_not_decide_has_no_list(
    admin: Client, sidecar: RunningSidecar
) -> None:
    sidecar.parts.enforcer.denial_of_everything = lambda: (
        "not_enrolled",
        "the sidecar has no agent yet",
    )
    answer = await admin.post("search/subject", question(resource="r-1"))
    assert (answer.status, "no agent yet" in answer.text()) == (503, True)
    sidecar.parts.enforcer.denial_of_everything = lambda: None
    sidecar.parts.policies.freshness.expire("the test says so")
    assert (await admin.post("search/action", question("agt_clerk", resource="r-1"))).status == 503


async def test_sources_of_the_settings_are_candidates(tmp_path: Path, control: Any) -> None:
    control.publish({**DOCUMENTS, **role("clerk", policy("clerk", "rest://crm/*"))})
    names = {"notes": NamedSource("rest://crm/notes", "low")}
    source = Source("crm", "rest", "http://127.0.0.1:1", None, "low", names=names)
    async with running_sidecar(tmp_path, control, authzen=SETTINGS, sources=(source,)) as running:
        client = Client(running)
        body = question("agt_clerk", resource_type="rest")
        assert await client.found("resource", body) == ["crm/notes"]
