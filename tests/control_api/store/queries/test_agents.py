"""What of a registry entry is published, and by what it is found."""

from dataclasses import replace

import pytest

from control_api.registry import queries
from control_api.registry.queries import StoredAgent
from control_api.store.transaction import Transaction
from tests.support.open_store import TENANT, opened


@pytest.mark.parametrize(
    ("permitted", "published"),
    [
        ((), ("clerk",)),
        (("clerk",), ("clerk",)),
        (("teller", "clerk", "auditor"), ("clerk", "teller", "auditor")),
        (("teller", "auditor"), ("teller", "auditor")),
    ],
)
def test_the_agent_s_own_role_is_published_first_if_it_is_permitted(
    permitted: tuple[str, ...], published: tuple[str, ...]
) -> None:
    stored = StoredAgent(
        "agt", "clerk", None, None, None, None, permitted, "api_key", None, "approved", 1, 1
    )
    assert stored.published().permitted_roles == published


async def test_a_text_finds_agents_as_it_is_and_in_any_case_on_either_database(
    either_url: str,
) -> None:
    plain = StoredAgent("agt_1", "r", None, None, None, None, (), "api_key", None, "approved", 1, 1)
    made = (
        replace(plain, display_name="Returns 100%"),
        replace(plain, agent_id="agt_2", owner="RETURNS team"),
        replace(plain, agent_id="agt_returns"),
        replace(plain, agent_id="agt_4", description="refunds"),
    )

    async def add(tx: Transaction) -> None:
        for each in made:
            await queries.add(tx.connection, TENANT, each)

    async with opened(either_url) as world:
        await world.store.write(TENANT, add)
        async with world.store.reading(TENANT) as connection:
            for text, ids in (
                ("returns", ["agt_1", "agt_2", "agt_returns"]),
                ("0%", ["agt_1"]),
                ("_R", ["agt_returns"]),
                ("\\", []),
            ):
                found = await queries.page(connection, TENANT, {"text": text}, None, 10)
                assert sorted(each.agent_id for each in found) == ids, text
