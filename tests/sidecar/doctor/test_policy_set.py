"""What the doctor finds in the policy set on disk: whom the sidecar's key speaks for, and which
denials a call escapes by naming no agent."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies.definitions.model import Key, TenantSettings
from policies.ground.keys import key_digest
from policies.sets.policy_set import (
    TENANT,
    key_document,
    key_name,
    role_document,
    role_name,
    tenant_document,
)
from sidecar.policy_cache.policy_store import CacheFile
from tests.sidecar.doctor.recorded_host import KEYS, found, observed, seen
from tests.support.fake_control_api import policy

OWN = key_name(key_digest(KEYS["sidecar.key"]))
READS = policy(name="reads", allowed_sources=("*",), denied_sources=())
ONLY = policy(name="only", denied_sources=("salaries*",), permitted_agent_ids=("agt_a",))


def cached(folder: Path, *documents: tuple[str, bytes | None], generation: int = 1) -> None:
    folder.mkdir(exist_ok=True)
    file = CacheFile(folder)
    with closing(file.connection), file.transaction() as connection:
        for revision, (name, body) in enumerate(documents):
            row = (generation, name, revision, "digest", body)
            connection.execute("INSERT INTO documents VALUES (?, ?, ?, ?, ?)", row)


def speaking(agent_ids: Sequence[str] | None) -> tuple[str, bytes]:
    agents = None if agent_ids is None else tuple(agent_ids)
    return OWN, key_document(Key("key_1", "sidecar", None, (), None, agents, None))


def settings(**changes: Any) -> tuple[str, bytes]:
    return TENANT, tenant_document(replace(TenantSettings("default"), **changes))


def role() -> tuple[str, bytes | None]:
    return role_name(READS.agent_role), role_document([READS, ONLY])


@pytest.mark.parametrize(
    ("agent_ids", "told"),
    [
        (None, [("medium", "is from before keys had agents: it has `*`")]),
        (["*"], [("low", "speaks for every agent: its `agent_ids` have `*`")]),
        (["agt"], []),
    ],
)
def test_a_key_that_may_act_for_every_agent_is_found(
    agent_ids: list[str] | None, told: list[tuple[str, str]], tmp_path: Path
) -> None:
    context = observed(tmp_path)
    assert found(context, "own_key") == []
    cached(context.settings.cache, speaking(["agt"]), speaking(agent_ids))
    wanted = [(severity, f"the sidecar's key `key_1` {text}") for severity, text in told]
    assert seen(found(context, "own_key")) == wanted


def test_a_denial_that_a_call_without_an_agent_escapes_is_found(tmp_path: Path) -> None:
    context = observed(tmp_path)
    assert found(context, "escaped_denials") == []
    cached(context.settings.cache, settings(), role())
    [told] = found(context, "escaped_denials")
    calls = f"in role `{READS.agent_role}`, a call that names no agent is not denied: "
    assert (told.severity.value, told.seen) == ("medium", f"{calls}`salaries*` of policy `only`")
    assert "`require_agent_id`" in told.do


@pytest.mark.parametrize(
    "documents",
    [
        [settings(require_agent_id=True), role()],
        [settings(), role(), speaking(["agt"])],
        [settings(), role(), (role_name(READS.agent_role), role_document([READS]))],
        [settings(), role(), (role_name(READS.agent_role), None)],
    ],
    ids=["agents are required", "the sidecar's key denies it", "not any more", "no policies"],
)
def test_a_denial_that_no_call_escapes_is_no_finding(documents: Any, tmp_path: Path) -> None:
    context = observed(tmp_path)
    cached(context.settings.cache, *documents)
    assert found(context, "escaped_denials") == []


@pytest.mark.parametrize("agent_ids", [["absent"], ["*"], None])
def test_a_key_that_may_act_for_no_agent_prevents_no_escape(
    agent_ids: list[str] | None, tmp_path: Path
) -> None:
    context = observed(tmp_path)
    cached(context.settings.cache, settings(), role(), speaking(agent_ids))
    assert len(found(context, "escaped_denials")) == 1


def test_an_unreadable_cache_is_reported(tmp_path: Path) -> None:
    context = observed(tmp_path)
    context.settings.cache.mkdir()
    (context.settings.cache / "policy.db").write_bytes(b"not a database" * 100)
    for check in ("own_key", "escaped_denials"):
        assert [each.severity.value for each in found(context, check)] == ["unknown"]
