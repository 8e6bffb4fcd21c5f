"""Attacks on a log whose attacker has the signing key: the log is written anew from the changed
entries on, so every hash and signature fits. Says by which means `sluice verify` finds each."""

import json
from base64 import b64decode
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

from deploy.commands.verify.__main__ import main
from policies.trail.merkle_tree import Frontier
from tests.second_verifier import rewrites
from tests.second_verifier.drafts import Draft, finished
from tests.second_verifier.drawing import chain_sources, draw
from tests.second_verifier.signers import Signer, base64

Attack = Callable[[Draft], None]


def change_a_verdict(draft: Draft) -> None:
    draft.entries[0]["pub"]["text"] = "another verdict"
    chain_sources(draft)


def delete_the_newest(draft: Draft) -> None:
    rewrites.remove(draft, draft.stop - 1)
    draft.checkpoints = {draft.stop}


def delete_the_newest_two(draft: Draft) -> None:
    delete_the_newest(draft)
    delete_the_newest(draft)


def drop_a_sidecar_record(draft: Draft) -> None:
    rewrites.remove(draft, _of_source(draft))
    draft.checkpoints = {draft.stop}


def repeat_a_sidecar_record(draft: Draft) -> None:
    seq = _of_source(draft)
    draft.entries.insert(seq, {**draft.entries[seq], "eid": "repeated"})
    draft.openings.insert(seq, dict(draft.openings[seq]))
    draft.stop += 1
    draft.checkpoints = {draft.stop}


def change_a_sidecar_record(draft: Draft) -> None:
    kinds = {seq: draft.entries[seq]["kind"] for seq in _records(draft)}
    kept = next(seq for seq, kind in kinds.items() if kind != "rejected_record")
    draft.entries[kept]["pub"]["text"] = "another verdict"


def swap_an_opening(draft: Draft) -> None:
    seq = _opened(draft)
    salt, _ = draft.openings[seq]["query"]
    draft.openings[seq]["query"] = [salt, "another query"]


def erase_silently(draft: Draft) -> None:
    del draft.openings[_opened(draft)]["query"]


# What the files alone show, and what only a checkpoint from outside does.
WITHIN: dict[Attack, str] = {
    drop_a_sidecar_record: "source_gap",
    repeat_a_sidecar_record: "source_gap",
    change_a_sidecar_record: "source_chain_broken",
    swap_an_opening: "opening_mismatch",
    erase_silently: "opening_missing",
}
OUTSIDE: dict[Attack, str] = {
    change_a_verdict: "root_mismatch",
    delete_the_newest: "log_behind_checkpoint",
    delete_the_newest_two: "log_behind_checkpoint",
}


@pytest.mark.parametrize("attack", WITHIN, ids=lambda attack: attack.__name__)
def test_the_entries_contradict_each_other(
    attack: Attack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = _log()
    assert _reasons(draft, tmp_path, capsys) == []
    attack(draft)
    assert WITHIN[attack] in _reasons(draft, tmp_path, capsys)


@pytest.mark.parametrize("attack", OUTSIDE, ids=lambda attack: attack.__name__)
def test_a_checkpoint_from_outside_contradicts_a_log_signed_anew(
    attack: Attack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = _log()
    kept = _note(draft, tmp_path)
    assert _reasons(draft, tmp_path, capsys, "--checkpoint", kept) == []
    attack(draft)
    assert _reasons(draft, tmp_path, capsys) == []  # the key alone does not show it
    assert OUTSIDE[attack] in _reasons(draft, tmp_path, capsys, "--checkpoint", kept)


def test_the_oldest_deleted_as_if_by_retention_contradict_the_anchor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _reasons(_purged(_log()), tmp_path, capsys) == []
    # The file's beginning and the `purge` entry are of different trees.
    draft = _purged(_log())
    draft.entries[0]["pub"]["text"] = "another verdict"
    chain_sources(draft)
    assert _reasons(draft, tmp_path, capsys) == ["purge_mismatch"]
    # Without the key, the signed root shows that the beginning is not the one that was signed.
    lines = _purged(_log()).lines()
    changed = json.loads(lines[1])
    changed["frontier"][0] = base64(bytes(32))
    lines[1] = json.dumps(changed, separators=(",", ":")).encode()
    assert _reasons_of(lines, draft, tmp_path, capsys) == ["root_mismatch"]


def test_oldest_entries_rewritten_and_deleted_contradict_an_outside_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = _note(_purged(_log()), tmp_path)
    draft = _log()
    change_a_verdict(draft)
    draft = _purged(draft)
    assert _reasons(draft, tmp_path, capsys) == []
    assert "root_mismatch" in _reasons(draft, tmp_path, capsys, "--checkpoint", kept)


def test_of_two_versions_for_two_readers_one_has_no_witness(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = _log(), _log()
    one.witnesses = [Signer.numbered(50)]  # it has cosigned this version, so never the other
    change_a_verdict(other)
    assert one.stop == other.stop
    notes = _note(one, tmp_path, "one"), _note(other, tmp_path, "other")
    # Each reader alone sees a log that verifies; readers who compare their checkpoints do not.
    for mine, shown, theirs in ((one, *notes), (other, *notes[::-1])):
        assert _reasons(mine, tmp_path, capsys, "--checkpoint", shown) == []
        assert _reasons(mine, tmp_path, capsys, "--checkpoint", theirs) == ["root_mismatch"]
    asked = "--witness", one.witness_keys()[0]
    assert _reasons(one, tmp_path, capsys, *asked) == []
    assert _reasons(other, tmp_path, capsys, *asked) == ["quorum_missing"]


def _purged(draft: Draft, size: int = 3) -> Draft:
    """The log with a `purge` entry at its end that says what precedes `size`, as a file from there
    on. What is changed in the draft later, the entry does not say."""
    part = deepcopy(draft)
    part.start, part.checkpoints = size, {part.stop}
    frontier = json.loads(part.lines()[1])["frontier"]
    tree = Frontier.from_bytes(size, b"".join(b64decode(each) for each in frontier))
    pub = {"frontier": frontier, "root": base64(tree.root()), "size": size}
    part.entries[-1] |= {"kind": "purge", "pub": pub}
    return part


def _note(draft: Draft, folder: Path, name: str = "kept") -> str:
    """The path of a file with the draft's last checkpoint."""
    path = folder / f"{name}.note"
    notes = [line for line in draft.lines() if line.startswith(b'{"checkpoint":')]
    path.write_text(json.loads(notes[-1])["checkpoint"], encoding="utf-8")
    return str(path)


def _log() -> Draft:
    """A log of two sources or more records of one, with openings, and one checkpoint at its end."""
    for seed in range(1000):
        draft = draw(Random(seed))
        whole = draft.start == 0 and draft.stop == len(draft.entries) >= 8 and draft.with_openings
        if whole and "src" not in draft.entries[0] and _records(draft) and _openings(draft):
            draft.witnesses, draft.signers = [], draft.signers[:1]
            draft.entries.append({**draft.entries[0], "kind": "heartbeat", "eid": "last", "cm": {}})
            draft.entries.append(deepcopy({**draft.entries[-1], "eid": "very last"}))
            draft.openings += [{}, {}]
            draft.stop += 2
            draft.checkpoints = {draft.stop}
            return draft
    raise AssertionError("no seed draws such a log")


def _records(draft: Draft) -> list[int]:
    """Records that a later record of the same source follows."""
    named = [entry.get("src", {}).get("id") for entry in draft.entries]
    return [seq for seq, name in enumerate(named) if name and name in named[seq + 1 :]]


def _openings(draft: Draft) -> list[int]:
    return [seq for seq, openings in enumerate(draft.openings) if "query" in openings]


def _of_source(draft: Draft) -> int:
    return _records(draft)[0]


def _opened(draft: Draft) -> int:
    return _openings(draft)[0]


def _reasons(
    draft: Draft, folder: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> list[str]:
    return _reasons_of(draft.lines(), draft, folder, capsys, *more)


def _reasons_of(
    lines: list[bytes], draft: Draft, folder: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> list[str]:
    """`draft` says which key the reader has pinned."""
    path = folder / "log.jsonl"
    path.write_bytes(finished(lines))
    main([str(path), "--json", "--key", draft.pinned()[0], *more])
    return [found["reason"] for found in json.loads(capsys.readouterr().out)["findings"]]
