"""Text of strangers is masked in turns with other requests, and not on the way to a record."""

from __future__ import annotations

import ast

from tests.architecture.tree import ROOT

# Names that mask at once, or that make a record whose texts have to be masked before, and who may
# use them.
ALLOWED = {
    "masked_text": set[str](),
    "masked_json": set[str](),
    # One user id, of at most 256 characters, in requests of administrators and sidecars.
    "masked_user": {
        "control_api/sessions/operations.py",
        "control_api/store/queries/holds.py",
    },
    "recorded_user": {"control_api/decisions/operations.py", "sidecar/sessions.py"},
    "decision_record": {"control_api/decisions/operations.py", "sidecar/recorder.py"},
    "lineage_record": {"control_api/decisions/operations.py"},
}
# Who masks ahead what they hand to a record. `sidecar/recorder.py` records what this enforcer has.
AHEAD = {
    "masked_ahead": {"control_api/decisions/operations.py", "sidecar/enforce.py"},
    "masked_texts": {"control_api/decisions/operations.py"},
}


def test_only_listed_modules_of_a_service_import_the_masking_functions() -> None:
    """Use `masked_ahead` or `MaskingTurns` before the turn of the loop that decides and records."""
    used: dict[str, set[str]] = {name: set() for name in ALLOWED | AHEAD}
    for path in [*(ROOT / "sidecar").rglob("*.py"), *(ROOT / "control_api").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        if not any(name in text for name in used):
            continue  # only a few have to be parsed
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom):
                for each in node.names:
                    if each.name in used:
                        used[each.name].add(str(path.relative_to(ROOT)))
    assert used == ALLOWED | AHEAD
