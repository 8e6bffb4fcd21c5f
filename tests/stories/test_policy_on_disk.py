"""An operator edits a policy file: it takes effect without a call or a restart."""

import time

import pytest

from tests.support.stack import Stack
from tests.support.waiting import AWAY, until


@pytest.mark.deep(stands_in="test_a_broken_policy_file_changes_nothing_and_a_whole_one_is_in_force")
def test_a_policy_file_edited_on_disk_is_in_force_in_the_sidecar(
    stack: Stack,
) -> None:
    def decided() -> tuple[str, str]:
        answer = stack.evaluate(source_id="handbook")[1]
        return answer["decision"], answer["policy_name"]

    assert decided() == ("ALLOW", "support-reads")
    for name, sources, expected in (
        ("support-none", "[]", ("DENY", "support-none")),
        ("support-some", "[handbook]", ("ALLOW", "support-some")),
    ):
        text = stack.policies.replace("support-reads", name)
        edited = text.replace("[handbook, contracts, rest://files/*]", sources)
        stack.policy_file.write_text(edited)
        until(
            f"{expected} is decided",
            lambda e=expected: decided() == e,  # type: ignore[misc]
            despite=AWAY,
        )


def test_a_broken_policy_file_changes_nothing_and_a_whole_one_is_in_force(stack: Stack) -> None:
    stack.policy_file.write_text("policies:\n  - name: x\n    denied_surces: [handbook]\n")
    time.sleep(1.5)
    assert stack.evaluate()[1]["decision"] == "ALLOW"
    stack.policy_file.write_text(stack.policies)
    assert stack.admin("POST", "/v1/policies/reload")["unchanged"] == ["support-reads"]
    edited = stack.policies.replace("[handbook, contracts, rest://files/*]", "[]")
    stack.policy_file.write_text(edited)
    until("it denies", lambda: stack.evaluate(source_id="handbook")[1]["decision"] == "DENY")
