"""What is known of a decision, in words: nothing is said of an entry that is not known of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from control_api.audit.event_models import AuditEvent, ExplainedCheck, LineageAction
from control_api.audit.proof_models import Verification
from control_api.console.words import checks_in_words, detail, verification_fault
from policies.trail.findings import SENTENCES, Reason

EVENT = AuditEvent(**AuditEvent.example)
SOUND = Verification(**Verification.example)


@pytest.mark.parametrize("reason", list(Reason))
def test_a_fault_at_the_entry_is_described_by_its_own_sentence(reason: Reason) -> None:
    found = replace(SOUND, state="damaged", broken_at=EVENT.event_id, reason=f"{reason}: seq 3")
    told = verification_fault(found, EVENT)
    assert told is not None
    assert (told.sentence, told.reason) == (SENTENCES[reason], f"{reason}: seq 3")
    derived = {
        Reason.DECISION_DIFFERS,
        Reason.FACTS_CONTRADICT,
        Reason.DOCUMENT_MISMATCH,
        Reason.DOCUMENT_MISSING,
    }
    assert told.of_log == (reason not in derived)
    assert verification_fault(replace(found, broken_at="another"), EVENT) is None


def test_a_sound_log_has_no_fault_at_the_entry() -> None:
    assert verification_fault(SOUND, EVENT) is None


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("allowed_sources", [], "none"),
        ("allowed_tasks", [], "any"),
        ("denied_tasks", [], "none"),
        ("allowed_sources", ["a", "b"], "a, b"),
        ("allowed_sources", ["a"] * 52, f"{', '.join(['a'] * 50)} and 2 more"),
    ],
)
def test_a_list_that_a_check_compared_is_shown(name: str, value: list[str], told: str) -> None:
    (check,) = checks_in_words([ExplainedCheck("source", "passed", {name: value})])
    assert check.facts == [(name.replace("_", " "), told)]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([], "[]"),
        ([None, True, {"a": 1}], '[null,true,{"a":1}]'),
        ({}, "{}"),
        (None, "none"),
        (False, "no"),
        (0, "0"),
        ("<b>", "<b>"),
    ],
)
def test_the_members_of_an_action_are_shown_as_they_were_recorded(value: Any, told: str) -> None:
    action = LineageAction(**{**LineageAction.example, "detail": {"sha256": value}})
    assert detail(action) == [("sha256", told)]
    assert detail(replace(action, action_type="retrieval")) == [("SHA-256 of the response", told)]
    assert detail(replace(action, detail=None)) == []
