"""What attackers and accidents do to a log, each a function with the name of what it does. A
`rewrite` is the insider's: the draft changes before it is written, so every hash and signature
fits again. An `edit` changes the lines of a finished file; the last line is made to fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from tests.second_verifier.drafts import WORDS, Draft, Signer, chain_sources

Rewrite = Callable[[Draft, Random], None]
Edit = Callable[[list[bytes], Random], None]


def _some(draft: Draft, random: Random) -> int:
    return random.randrange(draft.start, draft.stop)


# Rewrites: chain, tree and signatures fit.


def duplicate_an_id(draft: Draft, random: Random) -> None:
    draft.entries[_some(draft, random)]["eid"] = draft.entries[_some(draft, random)]["eid"]


def swap_an_opening(draft: Draft, random: Random) -> None:
    opened = [seq for seq in range(len(draft.openings)) if draft.openings[seq]]
    if opened:
        seq = random.choice(opened)
        path = random.choice(sorted(draft.openings[seq]))
        draft.openings[seq] |= {path: [draft.openings[seq][path][0], "another value"]}


def erase_an_opening(draft: Draft, random: Random) -> None:
    draft.openings[_some(draft, random)] = {}


def invent_an_opening(draft: Draft, random: Random) -> None:
    draft.openings[_some(draft, random)]["invented"] = ["AAAA", random.choice(WORDS)]


def turn_time_back(draft: Draft, random: Random) -> None:
    draft.times[_some(draft, random)] = "2025-12-31T23:59:59.999999Z"


def name_another_log(draft: Draft, random: Random) -> None:
    draft.places[_some(draft, random)] = {"log": "other"}


def skip_a_number(draft: Draft, random: Random) -> None:
    seq = _some(draft, random)
    draft.places[seq] = {"seq": seq + random.choice((-1, 1, 5))}


def cut_the_chain(draft: Draft, random: Random) -> None:
    draft.places[_some(draft, random)] = {"prev": random.choice(("", "A" * 43 + "="))}


def raise_the_version(draft: Draft, random: Random) -> None:
    draft.places[_some(draft, random)] = {"v": random.choice((0, 2))}


def add_a_member(draft: Draft, random: Random) -> None:
    draft.entries[_some(draft, random)]["extra"] = 1


def remove_a_member(draft: Draft, random: Random) -> None:
    entry = draft.entries[_some(draft, random)]
    del entry[random.choice(("kind", "eid", "pub", "cm", "masked"))]


def drop_a_source_record(draft: Draft, random: Random) -> None:
    """At the sidecar, or by who rewrites the log: the rest of the log is whole again."""
    seq = _some(draft, random)
    remove(draft, seq)


def swap_two_records(draft: Draft, random: Random) -> None:
    first, second = _some(draft, random), _some(draft, random)
    entries, openings = draft.entries, draft.openings
    entries[first], entries[second] = entries[second], entries[first]
    openings[first], openings[second] = openings[second], openings[first]


def repeat_a_source_record(draft: Draft, random: Random) -> None:
    seq = _some(draft, random)
    if seq + 1 < draft.stop:
        draft.entries[seq + 1] = {**draft.entries[seq], "eid": "repeated"}
        draft.openings[seq + 1] = dict(draft.openings[seq])


def change_a_source_record(draft: Draft, random: Random) -> None:
    draft.entries[_some(draft, random)]["pub"]["number"] = 99


def sign_with_another_key(draft: Draft, random: Random) -> None:
    signers = draft.signers
    draft.signers = [signers[0], Signer.numbered(99)]
    draft.entries[_some(draft, random)]["pub"]["text"] = "rewritten"
    chain_sources(draft)


def leave_a_witness_out(draft: Draft, random: Random) -> None:
    if draft.witnesses:
        draft.witnesses[random.randrange(len(draft.witnesses))] = Signer.numbered(50)


def sign_nothing(draft: Draft, random: Random) -> None:
    draft.checkpoints.clear()


def remove(draft: Draft, seq: int) -> None:
    """Removes an entry, and the checkpoints that no longer have their entries."""
    del draft.entries[seq], draft.openings[seq]
    draft.stop -= 1
    draft.checkpoints = {size for size in draft.checkpoints if size <= len(draft.entries)}


# Edits: the file, or the rows it was made of, changed without the key.


def _entries(lines: list[bytes]) -> list[int]:
    return [at for at, line in enumerate(lines) if line.startswith(b'{"entry":')]


def delete_an_entry(lines: list[bytes], random: Random) -> None:
    del lines[random.choice(_entries(lines))]


def delete_the_newest(lines: list[bytes], random: Random) -> None:
    for at in reversed(_entries(lines)[-random.randint(1, 3) :]):
        del lines[at]


def delete_the_oldest(lines: list[bytes], random: Random) -> None:
    for at in reversed(_entries(lines)[: random.randint(1, 3)]):
        del lines[at]


def delete_all_entries(lines: list[bytes], random: Random) -> None:
    for at in reversed(_entries(lines)):
        del lines[at]


def insert_an_entry(lines: list[bytes], random: Random) -> None:
    lines.insert(random.choice(_entries(lines)), lines[random.choice(_entries(lines))])


def reorder_two_entries(lines: list[bytes], random: Random) -> None:
    first, second = random.choice(_entries(lines)), random.choice(_entries(lines))
    lines[first], lines[second] = lines[second], lines[first]


def change_a_text(lines: list[bytes], random: Random) -> None:
    at = random.choice(_entries(lines))
    lines[at] = lines[at].replace(b'"masked":[]', b'"masked":[["query","EMAIL"]]')


def add_white_space(lines: list[bytes], random: Random) -> None:
    at = random.choice(_entries(lines))
    lines[at] = lines[at].replace(b'"kind":', b'"kind": ', 1)


def escape_a_letter(lines: list[bytes], random: Random) -> None:
    at = random.choice(_entries(lines))
    lines[at] = lines[at].replace(b'"eid":"', b'"eid":"\\u0061', 1)


def write_a_float(lines: list[bytes], random: Random) -> None:
    at = random.choice(_entries(lines))
    lines[at] = lines[at].replace(b'"masked":[', b'"masked":[0.5', 1)


def write_a_wide_integer(lines: list[bytes], random: Random) -> None:
    at = random.choice(_entries(lines))
    lines[at] = lines[at].replace(b'"masked":[', b'"masked":[9007199254740992', 1)


def write_a_key_twice(lines: list[bytes], random: Random) -> None:
    at = random.choice(_entries(lines))
    lines[at] = lines[at].replace(b'"masked":', b'"masked":[],"masked":', 1)


def write_an_upper_case_key(lines: list[bytes], random: Random) -> None:
    at = random.choice(_entries(lines))
    lines[at] = lines[at].replace(b'"pub":{', b'"pub":{"A":1,', 1)


def write_half_a_surrogate(lines: list[bytes], random: Random) -> None:
    at = random.choice(_entries(lines))
    lines[at] = lines[at].replace(b'"eid":"', b'"eid":"\\ud800', 1)


def write_no_utf8(lines: list[bytes], random: Random) -> None:
    at = random.choice(_entries(lines))
    lines[at] = lines[at].replace(b'"eid":"', b'"eid":"\xff', 1)


def nest_too_deep(lines: list[bytes], random: Random) -> None:
    at = random.choice(_entries(lines))
    lines[at] = lines[at].replace(b'"masked":[', b'"masked":[' + b"[" * 70 + b"]" * 70, 1)


def write_too_much(lines: list[bytes], random: Random) -> None:
    at = random.choice(_entries(lines))
    lines[at] = lines[at].replace(b'"masked":[', b'"masked":["' + b"x" * 65_536 + b'"', 1)


def change_a_checkpoint(lines: list[bytes], random: Random) -> None:
    marked = [at for at, line in enumerate(lines) if line.startswith(b'{"checkpoint":')]
    if marked:
        at = random.choice(marked)
        note = json.loads(lines[at])["checkpoint"]
        changes = ("default\n", "\n\n"), ("other\n", "\n"), ("default\n1", "default\n0")
        old, new = random.choice(((changes[0][0], changes[1][0]), changes[0], ("=", "")))
        text = json.dumps(note.replace(old, new, 1), ensure_ascii=False)
        lines[at] = b'{"checkpoint":' + text.encode() + b"}"


def delete_a_line(lines: list[bytes], random: Random) -> None:
    if len(lines) > 1:
        del lines[random.randrange(1, len(lines))]


def repeat_a_line(lines: list[bytes], random: Random) -> None:
    at = random.randrange(len(lines))
    lines.insert(at, lines[at])


def swap_two_lines(lines: list[bytes], random: Random) -> None:
    if len(lines) > 2:
        first, second = random.randrange(1, len(lines)), random.randrange(1, len(lines))
        lines[first], lines[second] = lines[second], lines[first]


def add_an_unknown_line(lines: list[bytes], random: Random) -> None:
    unknown: list[Any] = [b"{}", b'{"comment":"x"}', b"", b"null", b'{"end":false}', b"[]"]
    lines.insert(random.randint(1, len(lines)), random.choice(unknown))


def _erasures(lines: list[bytes]) -> list[int]:
    return [at for at, line in enumerate(lines) if line.startswith(b'{"erasure":')]


def delete_the_erasures(lines: list[bytes], random: Random) -> None:
    for at in reversed(_erasures(lines)):
        del lines[at]


def change_an_erasure(lines: list[bytes], random: Random) -> None:
    """Of another entry, without its proof, of another kind, or in another place."""
    changes = (b'\\"by\\":\\"key', b'\\"by\\":\\"kez'), (b"redact\\", b"change\\")
    for at in _erasures(lines)[:1]:
        way = random.randrange(4)
        if way < 2:
            lines[at] = lines[at].replace(*changes[way])
        elif way == 2:
            lines[at] = lines[at].partition(b',"proof":')[0] + b',"proof":null}'
        else:
            lines.insert(random.randrange(1, at + 1), lines.pop(at))


REWRITES: tuple[Rewrite, ...] = (
    duplicate_an_id, swap_an_opening, erase_an_opening, invent_an_opening, turn_time_back,
    name_another_log, skip_a_number, cut_the_chain, raise_the_version, add_a_member,
    remove_a_member, drop_a_source_record, swap_two_records, repeat_a_source_record,
    change_a_source_record, sign_with_another_key, leave_a_witness_out, sign_nothing,
)  # fmt: skip
EDITS: tuple[Edit, ...] = (
    delete_an_entry, delete_the_newest, delete_the_oldest, delete_all_entries, insert_an_entry,
    reorder_two_entries, change_a_text, add_white_space, escape_a_letter, write_a_float,
    write_a_wide_integer, write_a_key_twice, write_an_upper_case_key, write_half_a_surrogate,
    write_no_utf8, nest_too_deep, write_too_much, change_a_checkpoint, delete_a_line,
    repeat_a_line, swap_two_lines, add_an_unknown_line, delete_the_erasures, change_an_erasure,
)  # fmt: skip


def change_bytes(raw: bytes, random: Random) -> bytes:
    """Some bytes of a finished file changed at random, inserted or removed."""
    changed = bytearray(raw)
    for _ in range(random.choice((1, 1, 1, 5))):
        at = random.randrange(len(changed))
        match random.randrange(3):
            case 0:
                changed[at] = random.randrange(256)
            case 1:
                del changed[at]
            case _:
                changed.insert(at, random.randrange(256))
    return bytes(changed)
