"""What `sluice changes` says of the log itself."""

from __future__ import annotations

from typing import Any

from deploy.commands.client.changes import in_words

ORIGIN = "sluice/0194bd6e/default"


def of_log(action: str, before: dict[str, Any], after: dict[str, Any]) -> str | None:
    row = {"object_type": "log", "action": action, "reason": "restored from noon"}
    return in_words({**row, "before": before, "after": after})


def test_a_log_put_back_to_an_older_state_is_described_in_words() -> None:
    accepted = {"number": 1, "origin": f"{ORIGIN}#1"}
    for note, size in ((f"{ORIGIN}\n1019\nroot\n\n— x …\n", "1019"), (None, "an unknown number")):
        assert of_log("incarnation_accepted", {"checkpoint": note}, accepted) == (
            f"an operator accepted that the log lost entries (its last checkpoint counted {size}); "
            f"it goes on as {ORIGIN}#1: restored from noon"
        )
    back = {"revision": 3, "out_of_force": 2}
    assert of_log("restored", {"revision": 5}, back) == (
        "the database was put back from revision 5 to 3; 2 documents of the policy set are out of "
        "force until they are written again"
    )
    assert of_log("rebuilt", {"a": 1}, {"a": 2}) == "a: 1 → 2"
