"""No answer is taken for an ALLOW that isn't one, whatever its bytes."""

from __future__ import annotations

import json
import pickle
from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_guard import Decision, Denied, Misconfigured, Unavailable
from sluice_guard.decisions import Answer, read_decision
from sluice_guard.exchange import Exchange
from tests.deploy.sdk.python.scripted_server import ALLOW, EVENT, response

TYPE = (b"content-type", b"application/json")
WHOLE = response(ALLOW)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.sampled_from(["ALLOW", "DENY", "allow"])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
bodies = st.dictionaries(st.sampled_from([*ALLOW, "other"]), values)


@pytest.mark.parametrize("name", ALLOW)
@pytest.mark.parametrize("value", [None, 1, True, [], {"a": "b"}, ...])
def test_a_body_that_lacks_a_text_is_no_decision(name: str, value: object) -> None:
    changed = {**ALLOW, name: value}
    if value is ...:
        del changed[name]
    for decision in ("ALLOW", "DENY"):
        body = {**changed, **({} if name == "decision" else {"decision": decision})}
        assert not isinstance(
            read_decision(Answer(200, [TYPE], json.dumps(body).encode())), Decision
        )
    for wrong in ({"decision": "allow"}, {"decision": ""}, {"event_id": ""}):
        raw = json.dumps({**ALLOW, **wrong}).encode()
        assert not isinstance(read_decision(Answer(200, [TYPE], raw)), Decision)


@pytest.mark.deep(stands_in="test_a_body_that_lacks_a_text_is_no_decision")
@given(bodies)
def test_a_body_is_a_decision_only_with_four_texts(body: dict[str, Any]) -> None:
    found = read_decision(Answer(200, [TYPE], json.dumps(body).encode()))
    texts = [body.get(name) for name in ALLOW]
    fits = (
        all(isinstance(each, str) for each in texts)
        and body["decision"] in ("ALLOW", "DENY")
        and body["event_id"] != ""
    )
    assert isinstance(found, Decision) == fits
    if isinstance(found, Decision):
        assert bool(found) == (body["decision"] == "ALLOW")


@given(st.binary())
def test_bytes_are_read_or_refused(body: bytes) -> None:
    read = read_decision(Answer(200, [TYPE], body))
    assert isinstance(read, (Decision, str))


@given(st.integers(0, len(WHOLE) - 1), st.binary(max_size=3), st.integers(0, 8))
def test_a_damaged_response_is_never_another_decision(at: int, put: bytes, cut: int) -> None:
    """Bytes are replaced, inserted or lost anywhere, and the connection ends."""
    damaged = WHOLE[:at] + put + WHOLE[at + cut :]
    exchange = Exchange()
    exchange.begin(b"/", [(b"host", b"h")], b"{}")
    try:
        answer = exchange.receive(damaged) or exchange.receive(b"")
    except (h11.ProtocolError, ConnectionResetError):
        return
    found = "none" if answer is None else read_decision(answer)
    if isinstance(found, Decision) and found:
        # What still is an ALLOW has its decision as it was sent; only a text in it can differ.
        assert b'"ALLOW"' in damaged


def test_a_response_may_arrive_in_any_pieces() -> None:
    for size in range(1, len(WHOLE) + 1):
        exchange = Exchange()
        exchange.begin(b"/", [(b"host", b"h")], b"{}")
        answers = [
            exchange.receive(WHOLE[start : start + size]) for start in range(0, len(WHOLE), size)
        ]
        *before, last = answers
        assert before == [None] * len(before)
        assert last is not None
        assert read_decision(last)


def test_refusals_can_be_pickled_to_another_process() -> None:
    decision = Decision("DENY", EVENT, "p", "not listed")
    kinds = Denied("s", decision), Unavailable("s", "no answer"), Misconfigured("s", "403: unknown")
    for refusal in kinds:
        copied = pickle.loads(pickle.dumps(refusal))
        assert type(copied) is type(refusal)
        assert str(copied) == str(refusal)
        assert vars(copied) == vars(refusal)
