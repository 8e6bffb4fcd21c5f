"""What attackers and accidents do to a finished file, or to the rows it is made of, without the
key: each a function with the name of what it does. The file's last line is made to fit."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from random import Random
from typing import Any

from tests.second_verifier import encoding

Edit = Callable[[list[bytes], Random], None]


def _entries(lines: list[bytes]) -> list[int]:
    return [at for at, line in enumerate(lines) if line.startswith(b'{"entry":')]


def _replace(lines: list[bytes], random: Random, old: bytes, new: bytes) -> None:
    """In one of the entries, where it stands first."""
    at = random.choice(_entries(lines))
    lines[at] = lines[at].replace(old, new, 1)


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
    _replace(lines, random, b'"masked":[]', b'"masked":[["query","EMAIL"]]')


def add_white_space(lines: list[bytes], random: Random) -> None:
    _replace(lines, random, b'"kind":', b'"kind": ')


def escape_a_letter(lines: list[bytes], random: Random) -> None:
    _replace(lines, random, b'"eid":"', b'"eid":"\\u0061')


def write_a_float(lines: list[bytes], random: Random) -> None:
    _replace(lines, random, b'"masked":[', b'"masked":[0.5')


def write_a_wide_integer(lines: list[bytes], random: Random) -> None:
    _replace(lines, random, b'"masked":[', b'"masked":[9007199254740992')


def write_a_key_twice(lines: list[bytes], random: Random) -> None:
    _replace(lines, random, b'"masked":', b'"masked":[],"masked":')


def write_an_upper_case_key(lines: list[bytes], random: Random) -> None:
    _replace(lines, random, b'"pub":{', b'"pub":{"A":1,')


def write_half_a_surrogate(lines: list[bytes], random: Random) -> None:
    _replace(lines, random, b'"eid":"', b'"eid":"\\ud800')


def write_no_utf8(lines: list[bytes], random: Random) -> None:
    _replace(lines, random, b'"eid":"', b'"eid":"\xff')


def nest_too_deep(lines: list[bytes], random: Random) -> None:
    _replace(lines, random, b'"masked":[', b'"masked":[' + b"[" * 70 + b"]" * 70)


def write_too_much(lines: list[bytes], random: Random) -> None:
    _replace(lines, random, b'"masked":[', b'"masked":["' + b"x" * 65_536 + b'"')


def change_a_checkpoint(lines: list[bytes], random: Random) -> None:
    marked = [at for at, line in enumerate(lines) if line.startswith(b'{"checkpoint":')]
    if marked:
        at = random.choice(marked)
        note = json.loads(lines[at])["checkpoint"]
        changes = ("default\n", "\n\n"), ("other\n", "\n"), ("default\n1", "default\n0")
        old, new = random.choice(((changes[0][0], changes[1][0]), changes[0], ("=", "")))
        text = json.dumps(note.replace(old, new, 1), ensure_ascii=False)
        lines[at] = b'{"checkpoint":' + text.encode() + b"}"


def change_a_document(lines: list[bytes], random: Random) -> None:
    """Found by deriving the decisions again, and by nothing else."""
    for at, line in enumerate(lines):
        if line.startswith(b'{"policy":'):
            lines[at] = line.replace(b"contracts", b"payroll")


def damage_a_document_line(lines: list[bytes], random: Random) -> None:
    for at, line in enumerate(lines):
        if line.startswith(b'{"policy":'):
            lines[at] = random.choice((line[:-1], b" " + line, line.replace(b'"policy"', b'"P"')))


def leave_a_document_out(lines: list[bytes], random: Random) -> None:
    if stands := _documents(lines):
        del lines[random.choice(stands)]


def add_a_document(lines: list[bytes], random: Random) -> None:
    """One that no decision cites, or another copy of one."""
    copies = [lines[at] for at in _documents(lines)]
    document = random.choice([*copies, b'{"policy":["uncited"]}'])
    lines.insert(random.randrange(1, len(lines)), document)


def move_a_document(lines: list[bytes], random: Random) -> None:
    """Behind decisions that cite it, or behind all of them."""
    if stands := _documents(lines):
        document = lines.pop(random.choice(stands))
        lines.insert(random.choice((random.randint(1, len(lines)), len(lines))), document)


def _documents(lines: list[bytes]) -> list[int]:
    return [at for at, line in enumerate(lines) if line.startswith(b'{"policy":')]


def store_no_entry(lines: list[bytes], random: Random) -> None:
    """The row held something that an entry's line can't hold."""
    at, given = random.choice(_entries(lines)), [None, "", b64encode(b"a\nb").decode()]
    row: dict[str, Any] = {"entry": random.choice(given), "openings": random.choice(given)}
    lines[at] = encoding.write({"damaged": {**row, "seq": random.choice((0, 7, 10**9))}})


def misspell_a_damaged_line(lines: list[bytes], random: Random) -> None:
    at = random.choice(_entries(lines))
    wrong: list[dict[str, Any]] = [
        {"entry": each} for each in (5, "?", "YR==", "YQ", "YQ==\n", False)
    ]
    wrong += [{"seq": -1}, {"seq": "7"}, {"seq": None}, {"more": 1}]
    row = {"entry": None, "openings": "e30=", "seq": 7, **random.choice(wrong)}
    lines[at] = encoding.write({"damaged": row})


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


def spoil_a_signature(lines: list[bytes], random: Random) -> None:
    """One line of a note, by the log or by a witness."""
    marked = [at for at, line in enumerate(lines) if line.startswith(b'{"checkpoint":')]
    if marked:
        at = random.choice(marked)
        text, _, below = json.loads(lines[at])["checkpoint"].rpartition("\n\n")
        signed = below[:-1].split("\n")
        place = random.randrange(len(signed))
        mark, name, value = signed[place].split(" ")
        raw = bytearray(b64decode(value))
        raw[random.choice((0, 4, -1, -1))] ^= 1 << random.randrange(8)
        other = b64encode(raw).decode()
        spoilt = [f"{mark} {name} {each}" for each in (other, other, value[:-2] + "x=", value[:4])]
        spoilt += [f"{mark} {each} {value}" for each in ("other", "a+b", "a\u00a0b", "")]
        spoilt += [signed[place] + f"\n{mark} {name} {other}", signed[place] + "\n" + signed[0]]
        spoilt += [signed[place] * 2, signed[place] + f"\n{mark} x {value}" * 100]
        signed[place] = random.choice(spoilt if random.random() < 0.5 else spoilt[:1])
        below = "\n".join(signed) + "\n"
        lines[at] = encoding.write({"checkpoint": f"{text}\n\n{below}"})


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


def delete_the_purge(lines: list[bytes], random: Random) -> None:
    for at in _purges(lines):
        del lines[at]


def change_the_purge(lines: list[bytes], random: Random) -> None:
    """Of another entry, without its proof, of another kind, or in another place."""
    changes = (b'\\"count\\":', b'\\"count\\":1'), (b'\\"purge\\"', b'\\"change\\"')
    for at in _purges(lines):
        way = random.randrange(5)
        if way < 2:
            lines[at] = lines[at].replace(*changes[way])
        elif way == 2:
            purge = lines[at].partition(b',"purge":')[2]
            lines[at] = b'{"proof":null,"purge":' + purge
        elif way == 3:
            lines.insert(at, lines[at])
        else:
            lines.insert(random.randrange(1, len(lines)), lines.pop(at))


def _purges(lines: list[bytes]) -> list[int]:
    return [at for at, line in enumerate(lines) if b',"purge":"' in line[-70_000:]][:1]


EDITS: tuple[Edit, ...] = (
    delete_an_entry, delete_the_newest, delete_the_oldest, delete_all_entries, insert_an_entry,
    reorder_two_entries, change_a_text, add_white_space, escape_a_letter, write_a_float,
    write_a_wide_integer, write_a_key_twice, write_an_upper_case_key, write_half_a_surrogate,
    write_no_utf8, nest_too_deep, write_too_much, change_a_checkpoint, change_a_document,
    spoil_a_signature, damage_a_document_line, store_no_entry, misspell_a_damaged_line,
    delete_a_line, repeat_a_line, swap_two_lines, add_an_unknown_line,
    leave_a_document_out, add_a_document, move_a_document,
    delete_the_erasures, change_an_erasure, delete_the_purge, change_the_purge,
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
