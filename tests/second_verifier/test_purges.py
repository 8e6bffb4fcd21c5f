"""`purge` entries of a file: both verifiers find one that contradicts itself."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from deploy.commands.verify.__main__ import main
from tests.second_verifier.drafts import finished
from tests.second_verifier.drawing import draw
from tests.second_verifier.signers import base64
from tests.second_verifier.verifier import Pins, verify

HASH = base64(b"1" * 32)
FITS = {"count": 2, "frontier": [HASH], "last": HASH, "root": HASH, "size": 2}


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, []),
        ({"size": 0}, []),
        ({"root": base64(b"2" * 32)}, ["purge_mismatch"]),
        ({"frontier": ["x"]}, ["purge_mismatch"]),
        ({"frontier": [HASH, HASH]}, ["purge_mismatch"]),
        ({"frontier": None}, ["purge_mismatch"]),
        ({"size": 2_000}, ["purge_mismatch"]),
    ],
)
def test_a_purge_that_contradicts_itself_is_found(
    changed: dict[str, Any], found: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = next(
        draft
        for draft in (draw(Random(seed)) for seed in range(1000))
        if draft.start == 0 and draft.stop == len(draft.entries) > 4
    )
    entry = {"v": 1, "kind": "purge", "eid": "purge-1", "masked": [], "cm": {}}
    draft.entries.append({**entry, "pub": {**FITS, **changed}})
    draft.openings.append({})
    draft.stop += 1
    path = tmp_path / "log.jsonl"
    path.write_bytes(finished(draft.lines()))
    main([str(path), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert [each["reason"] for each in answer["findings"]] == found
    with path.open("rb") as file:
        assert [each.reason for each in verify(file, Pins()).findings] == found
