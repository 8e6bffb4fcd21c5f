"""What of a registry entry is published."""

import pytest

from control_api.store.queries.agents import StoredAgent


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
