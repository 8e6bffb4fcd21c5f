"""What is recorded of a question from which no retrieval can be made."""

import pytest

from sidecar.unmapped import UNMAPPED, Unmapped
from tests.support.sidecar import RunningSidecar


async def test_an_unmapped_question_is_a_recorded_and_counted_denial(
    sidecar: RunningSidecar,
) -> None:
    unmapped = Unmapped("no role: add it", user_id="ann@example.com", agent_id="agt_loans")
    recorded = await sidecar.parts.enforcer.deny(
        unmapped.retrieval("authzen"), UNMAPPED, unmapped.reason
    )
    await recorded.durable
    assert recorded.decision[:3] == ("DENY", "unmapped_request", "no role: add it")
    [record] = await sidecar.records()
    assert record["eid"] == recorded.event_id
    assert record["pub"]["request"] == {
        "agent_role": "unknown",
        "agent_id": "agt_loans",
        "source_id": "authzen://unmapped",
        "sensitivity_level": "critical",
        "source_type": "authzen",
    }
    sample = 'sluice_decisions_total{check="unmapped_request",decision="DENY"}'
    assert await sidecar.metric(sample) == 1


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 257, None])
def test_an_unrecordable_name_is_recorded_as_unknown(name: str | None) -> None:
    made = Unmapped("why", agent_role=name, user_id=name, agent_id=name).retrieval("edge")
    assert (made.agent_role, made.user_id, made.agent_id) == ("unknown",) * 3
    assert (made.source_id, made.source_type) == ("edge://unmapped", "edge")
