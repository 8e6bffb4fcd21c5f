"""What is stored of a record does not depend on whether it still knows what it was made of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from control_api.store.log.chain import LogChain, LogEnd
from policies.checks.finding import Facts
from policies.definitions.model import Policy
from policies.evaluate import evaluate
from policies.retrieval import Retrieval
from policies.trail.record import decision_record
from tests.policies.strategies import situations
from tests.policies.world import START

EMPTY = LogEnd("sluice/epoch/default", 0, b"", 0, b"")
USERS = st.sampled_from(["u-1", "ann@example.com", "+49 30 901820"])


@given(situations(), USERS, st.booleans(), st.binary(min_size=32, max_size=32))
def test_a_decision_is_indexed_as_its_bytes_are(
    situation: tuple[Retrieval, Facts, list[Policy]], user: str, masking: bool, salt: bytes
) -> None:
    call, facts, _ = situation
    asked = call._replace(user_id=user)
    made = decision_record(
        asked, evaluate(asked, facts), facts, event_id="e-1", salt=salt, masking=masking
    )
    assert made.decided is not None
    known, decoded = LogChain("default", EMPTY), LogChain("default", EMPTY)
    appended = known.add(made, START)
    assert appended == decoded.add(made._replace(decided=None), START)
    assert known.statement() == decoded.statement()
    assert known.end == decoded.end
