"""A search's answer is whole, and of one revision of the policy set; or it is 503."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from policies.definitions.model import Key
from policies.ground.errors import Unavailable
from policies.ground.keys import key_digest
from policies.sets.policy_set import key_name
from policies.sets.redis_keys import set_key
from sidecar.authzen.mapping import Mapper
from sidecar.authzen.question import read_question
from sidecar.authzen.search.claimants import SearchPace
from sidecar.authzen.search.searches import Searches
from sidecar.policy_cache.policy_view import OwnAgentOnly
from sidecar.settings.sections import AuthzenSettings
from tests.sidecar.authzen.searching import (
    ADMIN_KEY,
    Client,
    agent,
    keyed,
    policy,
    question,
    role,
)
from tests.sidecar.policy_cache.partial_replica.redis_set import fake_control_api_with_redis
from tests.support import redis
from tests.support.fake_control_api import fake_control_api
from tests.support.sidecar import RunningSidecar, running_sidecar

DOCUMENTS = {
    **keyed(ADMIN_KEY, Key("key_a", "admin")),
    **agent("agt_a", "clerk"),
    **agent("agt_b", "clerk"),
    **role("clerk", policy("clerk", "record://one")),
}
SUBJECTS = question(resource="one")


@pytest.fixture
def control(control: Any) -> Any:
    control.publish(DOCUMENTS)
    return control


def at_the_end(running: RunningSidecar, do: Callable[[int], None]) -> list[int]:
    """Call `do` with a number whenever a search has judged all of its candidates. Returns the
    numbers so far."""
    calls: list[int] = []

    def count() -> None:
        # Asked when a search begins and when it ends.
        calls.append(len(calls) + 1)
        if len(calls) % 2 == 0:
            do(len(calls) // 2)

    running.parts.enforcer.denial_of_everything = count
    return calls


@pytest.mark.parametrize(
    ("kind", "body", "found"),
    [
        ("subject", SUBJECTS, ["agt_a", "agt_b"]),
        ("resource", question("agt_a"), ["one"]),
        ("action", question("agt_a", resource="one"), None),
    ],
)
async def test_a_search_begins_anew_when_the_policy_set_changes(
    sidecar: RunningSidecar, kind: str, body: Any, found: list[str] | None
) -> None:
    policy_set = sidecar.parts.policies.policy_set

    def change(number: int) -> None:
        if number == 1:
            policy_set.apply((), policy_set.revision + 1)

    calls = at_the_end(sidecar, change)
    names = await Client(sidecar, ADMIN_KEY).found(kind, body)
    assert (names == found) if found else names
    assert len(calls) == 4, "it ran twice"


async def test_a_search_in_a_set_that_keeps_changing_is_refused_with_503(
    sidecar: RunningSidecar,
) -> None:
    policy_set = sidecar.parts.policies.policy_set
    at_the_end(sidecar, lambda _: policy_set.apply((), policy_set.revision + 1))
    answer = await Client(sidecar, ADMIN_KEY).post("search/subject", SUBJECTS)
    assert (answer.status, "changes faster" in answer.text()) == (503, True)


async def test_a_key_that_was_revoked_meanwhile_gets_no_answer(sidecar: RunningSidecar) -> None:
    policy_set = sidecar.parts.policies.policy_set
    name = key_name(key_digest(ADMIN_KEY))

    def revoke(_: int) -> None:
        sidecar.parts.cache_file.connection.execute("DELETE FROM documents WHERE name = ?", (name,))
        policy_set.apply((name,), policy_set.revision + 1)

    at_the_end(sidecar, revoke)
    answer = await Client(sidecar, ADMIN_KEY).post("search/subject", SUBJECTS)
    assert answer.status == 401
    assert "invalid_token" in answer.headers["WWW-Authenticate"]


async def test_a_sidecar_with_its_own_agents_documents_alone_has_no_list_of_agents(
    tmp_path: Path,
) -> None:
    """It holds what it was given, and can't know that it is not all."""
    async with fake_control_api() as control:
        control.create_tenant()
        control.publish(DOCUMENTS)
        async with running_sidecar(tmp_path, control) as running:
            searches = Searches(
                running.parts.enforcer,
                Mapper(AuthzenSettings()),
                OwnAgentOnly(),
                (),
                SearchPace(lambda: 0.0, lambda: 0),
            )
            key = running.parts.policies.policy_set.key(key_digest(ADMIN_KEY))
            assert key is not None
            asked = read_question(question("agt_a", resource="one"))
            with pytest.raises(Unavailable, match="enrols, so it is given the documents of its"):
                await searches.subjects(asked, key)


@redis.needs_redis
async def test_a_working_set_that_can_not_be_completed_is_no_answer(tmp_path: Path) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        control.publish(DOCUMENTS)
        async with running_sidecar(tmp_path, control) as running:
            client = Client(running, ADMIN_KEY)
            assert await client.found("subject", SUBJECTS) == ["agt_a", "agt_b"]
            assert await client.found("resource", question("agt_a")) == ["one"]
            control.redis.delete(set_key("default"))
            # The control API has what Redis lost.
            assert await client.found("subject", SUBJECTS) == ["agt_a", "agt_b"]
            control.feeds = False
            answer = await client.post("search/subject", SUBJECTS)
            assert (answer.status, "as a whole" in answer.text()) == (503, True)
            # What other searches need is held.
            assert await client.found("resource", question("agt_a")) == ["one"]
