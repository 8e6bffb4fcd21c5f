"""A full replica: how changes arrive, and what they leave on disk."""

from functools import partial
from pathlib import Path

import pytest

from policies.definitions.model import Key, TenantSettings
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import (
    NoPolicySet,
    key_document,
    key_name,
    role_document,
    role_name,
    tenant_document,
)
from tests.sidecar.policy_cache.full_replica.polling_replica import polling_replica
from tests.support import waiting
from tests.support.fake_control_api import EVALUATE_KEY, ROLE, fake_control_api, many_roles, policy
from tests.support.sidecar import EVALUATE, running_sidecar


async def test_a_first_replica_is_whole_and_fresh(tmp_path: Path) -> None:
    async with fake_control_api() as control, polling_replica(tmp_path, control) as replica:
        assert replica.stale()
        with pytest.raises(NoPolicySet):
            replica.policy_set.settings()
        control.create_tenant()
        await replica.sync()
        assert replica.policy_set.revision == control.revision
        assert replica.policy_set.settings() == TenantSettings("default")
        assert replica.policy_set.role(ROLE) is not None
        assert replica.policy_set.key(key_digest(EVALUATE_KEY)) is not None
        assert replica.policy_set.role("unknown") is None
        assert not replica.stale()


async def test_a_change_of_many_pages_takes_effect_at_once(tmp_path: Path) -> None:
    async with fake_control_api() as control, polling_replica(tmp_path, control) as replica:
        control.page = 10
        control.create_tenant()
        await replica.sync()
        before = replica.policy_set.revision
        control.publish({**dict(many_roles(35)), role_name(ROLE): None})
        for _ in range(3):
            await replica.follower.step()
            assert replica.policy_set.revision == before
            assert replica.policy_set.role("role-0") is None
            assert replica.policy_set.role(ROLE) is not None
        await replica.follower.step()
        assert replica.policy_set.revision == control.revision
        assert replica.policy_set.role("role-0") is not None
        assert replica.policy_set.role("role-34") is not None
        assert replica.policy_set.role(ROLE) is None


async def test_an_interrupted_change_is_continued_where_it_stopped(tmp_path: Path) -> None:
    async with fake_control_api() as control, polling_replica(tmp_path, control) as replica:
        control.page = 10
        control.create_tenant()
        control.publish(dict(many_roles(25)))
        await replica.follower.step()
        await replica.follower.step()
        polls = len(control.polls)
        control.publish({role_name("role-0"): None})
        await replica.sync()
        assert [since for _, since in control.polls[polls:]] == [20, 30]
        assert replica.policy_set.revision == control.revision == 31
        assert replica.policy_set.role("role-0") is None
        assert replica.policy_set.role("role-1") is not None


async def test_a_change_that_was_killed_halfway_leaves_the_old_set(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.page = 10
        async with polling_replica(tmp_path, control) as replica:
            control.create_tenant()
            await replica.sync()
            before = replica.policy_set.revision
            control.publish({**dict(many_roles(15)), role_name(ROLE): None})
            await replica.follower.step()
            assert replica.rows() == 15
        async with polling_replica(tmp_path, control) as replica:
            assert replica.documents.position.revision == replica.policy_set.revision == before
            assert replica.policy_set.role(ROLE) is not None
            assert replica.rows() == 5
            await replica.sync()
            assert replica.policy_set.role(ROLE) is None
            assert replica.policy_set.role("role-14") is not None


async def test_a_replaced_or_removed_document_leaves_no_row(tmp_path: Path) -> None:
    async with fake_control_api() as control, polling_replica(tmp_path, control) as replica:
        control.create_tenant()
        await replica.sync()
        rows = replica.rows()
        for version in range(3):
            changed = role_document([policy(version=version + 2)])
            control.publish({role_name(ROLE): changed, role_name("other"): changed})
            await replica.sync()
        assert replica.rows() == rows + 1
        control.publish({role_name("other"): None})
        await replica.sync()
        assert replica.rows() == rows
        role = replica.policy_set.role(ROLE)
        assert role is not None
        assert role.clauses[0].version == 4


async def test_a_change_of_many_names_leaves_no_old_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.policy_cache.full_replica.MAX_CHANGED_NAMES", 20)
    async with fake_control_api() as control, polling_replica(tmp_path, control) as replica:
        control.create_tenant()
        control.publish(dict(many_roles(50)))
        await replica.sync()
        assert replica.rows() == 55
        control.publish(dict.fromkeys(dict(many_roles(45))))
        await replica.sync()
        assert replica.policy_set.role("role-44") is None
        assert replica.policy_set.role("role-45") is not None
        assert replica.rows() == 10


@pytest.mark.deep(stands_in="test_a_change_of_many_names_leaves_no_old_row")
async def test_a_huge_change_leaves_no_old_row(tmp_path: Path) -> None:
    async with (
        fake_control_api() as control,
        # An answer may take a quarter of the limit.
        polling_replica(tmp_path, control, limit=60.0) as replica,
    ):
        control.create_tenant()
        control.publish(dict(many_roles(5000)))
        await replica.sync()
        assert replica.policy_set.role("role-4999") is not None
        assert replica.rows() == 5005
        control.publish(dict.fromkeys(dict(many_roles(4500))))
        await replica.sync()
        assert replica.policy_set.role("role-4499") is None
        assert replica.policy_set.role("role-4500") is not None
        assert replica.rows() == 505


async def test_a_set_of_another_store_replaces_everything(tmp_path: Path) -> None:
    async with fake_control_api() as control, polling_replica(tmp_path, control) as replica:
        control.create_tenant()
        control.publish(dict(many_roles(20)))
        await replica.sync()
        assert replica.policy_set.role("role-1") is not None
        assert replica.other_stores == 0
        control.epoch, control.revision, control.documents = "epoch-2", 0, {}
        control.create_tenant(policy(name="renewed"))
        await replica.sync()
        role = replica.policy_set.role(ROLE)
        assert role is not None
        assert role.clauses[0].name == "renewed"
        assert replica.policy_set.role("role-1") is None
        assert replica.policy_set.revision == 5
        assert replica.other_stores == 1
        await replica.sync()
        assert replica.rows() == 5


async def test_keys_are_accepted_only_while_they_are_in_the_set(tmp_path: Path) -> None:
    another = make_key(b"a" * 32)
    name = key_name(key_digest(another))
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control) as running:
            assert (await running.call("POST", EVALUATE, b"{}", key=another)).status == 403
            control.publish({name: key_document(Key("key_a", "evaluate"))})

            async def answers(status: int) -> bool:
                answer = await running.call("POST", EVALUATE, b"{}", key=another)
                return answer.status == status

            for wanted, document in ((422, None), (403, key_document(Key("key_a", "read")))):
                await waiting.until_async(f"{wanted} is answered", partial(answers, wanted))
                control.publish({name: document})


async def test_memory_holds_only_used_documents(tmp_path: Path) -> None:
    async with fake_control_api() as control, polling_replica(tmp_path, control) as replica:
        control.publish({"tenant": tenant_document(TenantSettings("default"))})
        control.publish(dict(many_roles(3000)))
        await replica.sync()
        assert replica.fetched == []
        replica.policy_set.role("role-7")
        replica.policy_set.role("role-7")
        assert replica.fetched == [role_name("role-7")]
