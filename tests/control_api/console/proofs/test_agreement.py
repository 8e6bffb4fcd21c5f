"""The modules that verify in the reader's browser give the verdict of the offline verifier: on the
golden vectors, on published ones, and on thousands of mutations of both."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from policies.ground.canonical import b64
from policies.ground.signing import Endorsement, Signer
from policies.trail.entry import time_of
from policies.trail.merkle_tree import leaf_hash
from policies.trail.proofs.signed_note import cosign, parse
from tests import servers
from tests.control_api.console.proofs.verdicts import Case, in_browser, in_python
from tests.policies.trail.proofs.naive_proofs import naive_consistency, naive_path
from tests.policies.world import naive_root
from tests.support.stack import ROOT

pytestmark = pytest.mark.skipif(servers.find("node") is None, reason=servers.how("node"))

VECTORS = ROOT / "tests" / "vectors"
LEAVES = [leaf_hash(b"entry %d" % number) for number in range(40)]


def vector(name: str) -> Any:
    return json.loads((VECTORS / name).read_text())


def agree(cases: list[Case]) -> list[Any]:
    """Asks both; they must agree on each case. Returns the verdicts."""
    told = in_browser(cases)
    for case, verdict in zip(cases, told, strict=True):
        assert verdict == in_python(case), case
    return told


COSIGNED = vector("cosigned.json")
LOG_KEY, WITNESS = COSIGNED["verifier_keys"]
KEYS = [b64(base64.b64decode(LOG_KEY.split("+", 2)[2])[1:])]
ENTRIES = [each["utf8"] for each in vector("log.json")["entries"]]


def test_golden_notes_proofs_and_keys_are_accepted() -> None:
    note, proof = COSIGNED["note"], COSIGNED["proof"]
    told = agree(
        [
            ("checkpoint", note, "default", KEYS, [WITNESS]),
            ("checkpoint", note, "default", KEYS, []),
            ("proof", proof, "default", KEYS),
            ("key", LOG_KEY),
            ("key", WITNESS),
        ]
    )
    assert told[0]["witnesses"] == [["witness.example/one", "1767225600"]]
    assert told[2] is True
    assert all(told)
    assert all(agree([("entry", b64(each.encode())) for each in ENTRIES]))


def test_marks_of_an_entry_are_read_and_its_time_is_shown() -> None:
    entries = [json.loads(each["utf8"]) for each in vector("judged.json")["entries"]]
    decisions = [each for each in entries if each["kind"] == "decision"]
    marked = [each for each in decisions if "marks" in each]
    assert len(marked) == 3
    odd: tuple[Any, ...] = ([], ["late"], "time_doubtful", [1], [["time_doubtful"]], None, {})
    wrong = [{**marked[0], "marks": marks} for marks in (*odd, ["time_doubtful"] * 2)]
    wrong += [{**marked[0], "marks": ["time_doubtful", "agent_foreign"]}]
    wrong += [{name: value for name, value in marked[0].items() if name != "src"}]
    told = agree(
        [
            *(("entry", _canonical(each)) for each in (*decisions, *wrong)),
            *(("time", _canonical(each)) for each in decisions),
        ]
    )
    count = len(decisions)
    assert all(told[:count])
    assert not any(told[count:-count])
    assert told[-count:] == [time_of(each) for each in decisions]


def _canonical(entry: dict[str, Any]) -> str:
    return b64(json.dumps(entry, sort_keys=True, separators=(",", ":")).encode())


def test_golden_commitments_open() -> None:
    given = vector("commitments.json")
    cases: list[Case] = [
        (
            "opening",
            {each["path"]: b64(bytes.fromhex(each["commitment"]))},
            each["path"],
            [b64(bytes.fromhex(each["salt"])), each["value"]],
        )
        for each in given["fields"]
    ]
    assert all(agree(cases))
    wrong = [(name, cm, path, [salt, value + "x"]) for name, cm, path, (salt, value) in cases]
    assert not any(agree([*wrong, *((*each[:3], 7) for each in cases)]))


DATES = (
    "2026-02-30T00:00:00.000000Z", "2026-02-28T24:00:00.000000Z", "2026-13-01T00:00:00.000000Z",
    "0000-01-01T00:00:00.000000Z", "0001-01-01T00:00:00.000000Z", "2026-02-28T23:59:60.000000Z",
    "2024-02-29T00:00:00.000000Z", "2026-02-28T00:00:00.000Z", "2026-02-28 00:00:00.000000Z",
)  # fmt: skip


def test_proofs_of_a_tiny_log_and_some_mutations_of_each_kind_get_the_same_verdict() -> None:
    roots = [naive_root(LEAVES[:size]) for size in range(8)]
    trees: list[Case] = []
    for new in range(1, 8):
        for at in range(new):
            path = [b64(each) for each in naive_path(at, LEAVES[:new])]
            place = b64(LEAVES[at]), str(at), str(new)
            trees.append(("inclusion", *place, path, b64(roots[new])))
            proof = [b64(each) for each in naive_consistency(at + 1, LEAVES[:new])]
            old = str(at + 1), b64(roots[at + 1])
            trees.append(("consistency", *old, str(new), b64(roots[new]), proof))
    draw, note, proof_text = random.Random(7), COSIGNED["note"], COSIGNED["proof"]
    mutated: list[Case] = [_mutated_tree(draw, draw.choice(trees)) for _ in range(60)]
    for each in mutations(draw, note, 40):
        mutated.append(("checkpoint", each, "default", KEYS, [WITNESS]))
    mutated += [("proof", each, "default", KEYS) for each in mutations(draw, proof_text, 40)]
    mutated += [("key", each) for key in (LOG_KEY, WITNESS) for each in mutations(draw, key, 20)]
    for text in ENTRIES[:2]:
        changed = (each.encode(errors="surrogatepass") for each in mutations(draw, text, 20))
        mutated += [("entry", b64(each)) for each in changed]
        mutated += [("entry", b64(each)) for each in _rewritten(draw, text, 60)]
        for ts in DATES:
            entry = json.dumps(json.loads(text) | {"ts": ts}, sort_keys=True, separators=(",", ":"))
            mutated.append(("entry", b64(entry.encode())))
    mutated += [("entry", b64(each)) for text in ENTRIES for each in _other_members(text)]
    # Each character that a format treats apart, in a name; and hashes of other lengths.
    for character in INSERTED:
        for name in ("witness.example", "default"):
            longer, other = note.replace(name, f"{name}{character}"), note.replace(name, character)
            mutated.append(("checkpoint", longer, "default", KEYS, [WITNESS]))
            mutated.append(("checkpoint", other, "default", KEYS, []))
        mutated.append(("key", WITNESS.replace("example", f"example{character}")))
    for size in (0, 31, 33):
        odd = b64(bytes(size))
        mutated.append(("inclusion", odd, "0", "1", [], odd))
        mutated.append(("consistency", "1", odd, "1", odd, []))
        mutated.append(("consistency", "1", odd, "2", odd, [odd]))
    mutated.append(("consistency", "7", b64(roots[7]), "7", b64(roots[7]), [b64(roots[1])]))
    told = agree([*trees, *mutated])
    assert all(told[: len(trees)])
    assert not all(told[len(trees) :])


@pytest.mark.deep(
    stands_in="test_proofs_of_a_tiny_log_and_some_mutations_of_each_kind_get_the_same_verdict"
)
def test_golden_and_published_proofs_lead_to_their_roots() -> None:
    given = vector("proofs.json")
    leaves = [leaf_hash(b"entry %d" % number) for number in range(300)]
    cases: list[Case] = []
    for each in given["inclusion"]:
        path = [b64(bytes.fromhex(hash_)) for hash_ in each["hashes"]]
        root = naive_root(leaves[: each["size"]])
        leaf = leaves[each["index"]]
        cases.append(
            ("inclusion", b64(leaf), str(each["index"]), str(each["size"]), path, b64(root))
        )
    assert all(agree(cases))
    published = vector("published/merkle.json")
    cases = [
        ("inclusion", leaf or "", str(index), str(size), path or [], root or "")
        for index, size, root, leaf, path, _ in published["inclusion"]["cases"]
    ]
    told = agree(cases)
    wrong = [each[-1] for each in published["inclusion"]["cases"]]
    assert [not each for each in told] == wrong
    columns = published["consistency"]["columns"]
    rows = [dict(zip(columns, each, strict=True)) for each in published["consistency"]["cases"]]
    agree(
        [
            (
                "consistency",
                str(row["size1"]),
                row["root1"] or "",
                str(row["size2"]),
                row["root2"] or "",
                row["proof"] or [],
            )
            for row in rows
        ]
    )


@pytest.mark.deep(
    stands_in="test_proofs_of_a_tiny_log_and_some_mutations_of_each_kind_get_the_same_verdict"
)
def test_every_pair_of_sizes_of_a_small_log_agrees() -> None:
    roots = [naive_root(LEAVES[:size]) for size in range(len(LEAVES) + 1)]
    cases: list[Case] = []
    for new in range(1, 24):
        for at in range(new):
            path = [b64(each) for each in naive_path(at, LEAVES[:new])]
            place = b64(LEAVES[at]), str(at), str(new)
            cases.append(("inclusion", *place, path, b64(roots[new])))
            proof = [b64(each) for each in naive_consistency(at + 1, LEAVES[:new])]
            old = str(at + 1), b64(roots[at + 1])
            cases.append(("consistency", *old, str(new), b64(roots[new]), proof))
    assert all(agree(cases))
    draw = random.Random(18)
    assert not all(agree([_mutated_tree(draw, draw.choice(cases)) for _ in range(3000)]))


def _mutated_tree(draw: random.Random, case: Case) -> Case:
    name, *given = case
    path = next(each for each in given if isinstance(each, list))
    match draw.randrange(5):
        case 0 if path:
            path = [*path]
            path[draw.randrange(len(path))] = b64(draw.choice(LEAVES))
        case 1 if path:
            path = [*path]
            del path[draw.randrange(len(path))]
        case 2:
            path = [*path, b64(draw.choice(LEAVES))]
        case 3:
            at = draw.choice([place for place, each in enumerate(given) if _is_number(each)])
            given[at] = str(max(0, int(given[at]) + draw.choice((-1, 1, 2, 2**53, 2**63))))
        case _:
            path = path[::-1]
    return (name, *(path if isinstance(each, list) else each for each in given))


def _is_number(value: object) -> bool:
    return isinstance(value, str) and value.isdigit()


# ------------------------------------------------------------------------------- mutated texts

INSERTED = '\n \t\0+-—=Aé\ud83d\u2028\xa0\x85\ufeff0123456789"\\{}[],:.e_'


def mutations(draw: random.Random, text: str, count: int) -> Iterator[str]:
    """Texts that differ from `text` in one place or few."""
    lines = text.split("\n")
    for _ in range(count):
        at = draw.randrange(len(text))
        match draw.randrange(7):
            case 0:
                yield text[:at] + text[at + 1 :]
            case 1:
                yield text[:at] + draw.choice(INSERTED) + text[at:]
            case 2:
                yield text[:at] + draw.choice(INSERTED) + text[at + 1 :]
            case 3:
                yield text[:at]
            case 4:
                one, other = draw.randrange(len(lines)), draw.randrange(len(lines))
                swapped = [*lines]
                swapped[one], swapped[other] = swapped[other], swapped[one]
                yield "\n".join(swapped)
            case 5:
                repeated = [*lines]
                repeated.insert(draw.randrange(len(lines)), draw.choice(lines))
                yield "\n".join(repeated)
            case _:
                end = min(len(text), at + draw.randrange(1, 40))
                yield text[:at] + text[end:] + text[at:end]


@pytest.mark.deep(
    stands_in="test_proofs_of_a_tiny_log_and_some_mutations_of_each_kind_get_the_same_verdict"
)
@pytest.mark.parametrize(
    ("text", "case_of", "count"),
    [
        (COSIGNED["note"], lambda text: ("checkpoint", text, "default", KEYS, [WITNESS]), 4000),
        (COSIGNED["proof"], lambda text: ("proof", text, "default", KEYS), 3000),
        (LOG_KEY, lambda text: ("key", text), 1500),
        (WITNESS, lambda text: ("key", text), 1500),
    ],
    ids=["notes", "proofs", "log-keys", "witness-keys"],
)
def test_mutations_get_the_same_verdict(
    text: str, case_of: Callable[[str], Case], count: int
) -> None:
    agree([case_of(each) for each in mutations(random.Random(count), text, count)])


@pytest.mark.deep(
    stands_in="test_proofs_of_a_tiny_log_and_some_mutations_of_each_kind_get_the_same_verdict"
)
def test_mutated_entries_get_the_same_verdict() -> None:
    draw = random.Random(5)
    cases: list[Case] = []
    for text in ENTRIES:
        for each in mutations(draw, text, 400):
            cases.append(("entry", b64(each.encode(errors="surrogatepass"))))
        cases += [("entry", b64(each)) for each in _rewritten(draw, text, 150)]
    told = agree(cases)
    assert True in told  # among thousands of mutations, some are entries: of another text or number
    assert told.count(False) > len(told) / 2


def _rewritten(draw: random.Random, text: str, count: int) -> Iterator[bytes]:
    """Canonical bytes, of other members or values."""
    values: list[Any] = [
        None,
        True,
        1.5,
        1.0,
        -0.0,
        2**53,
        2**53 - 1,
        "\ud800",
        "x",
        "\x7f",
        [],
        {},
        [[]],
        {"A": 1},
    ]
    values += ["2026-02-30T00:00:00.000000Z", "2026-02-28T24:00:00.000000Z", "é😀"]
    for _ in range(count):
        entry = json.loads(text)
        place = entry if draw.random() < 0.5 else draw.choice([entry["pub"], entry.get("src", {})])
        name = draw.choice([*place, "x", "__proto__", "src", "ä"])
        if draw.random() < 0.2:
            place.pop(name, None)
        else:
            place[name] = draw.choice(values)
        yield _encoded(entry)


def _other_members(text: str) -> Iterator[bytes]:
    """Canonical bytes with one member more or less, in each object of an entry."""
    entry = json.loads(text)
    for part in (entry, entry["cm"], entry["pub"], entry.get("src", {})):
        part["x"] = "x"
        yield _encoded(entry)
        del part["x"]
        for name in list(part):
            value = part.pop(name)
            yield _encoded(entry)
            part[name] = value


def _encoded(entry: Any) -> bytes:
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="surrogatepass")


def test_deep_entries_get_the_same_verdict() -> None:
    entry = json.loads(ENTRIES[0])
    cases: list[Case] = []
    for depth in (60, 61, 62, 63, 64, 65, 66, 200):
        entry["pub"] = json.loads('{"a":' * depth + "1" + "}" * depth)
        raw = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()
        cases.append(("entry", b64(raw)))
    told = agree(cases)
    assert told[0]
    assert not told[-1]


def test_only_endorsed_keys_are_followed() -> None:
    keys = [Signer(bytes([number]) * 32) for number in range(6)]
    first = b64(keys[0].public)
    chain = [Endorsement.by(one, other.public).to_wire() for one, other in pairwise(keys)]
    forged = {**chain[1], "signature": chain[2]["signature"]}
    stranger = Endorsement.by(keys[5], keys[4].public).to_wire()
    told = agree(
        [
            ("endorsed", first, chain),
            ("endorsed", first, [chain[0], forged, *chain[2:]]),
            ("endorsed", b64(keys[3].public), chain),
            ("endorsed", first, [stranger]),
            ("endorsed", first, [chain[0], stranger, *chain[1:]]),
            ("endorsed", first, chain[::-1]),
        ]
    )
    assert [len(each) for each in told] == [6, 2, 3, 1, 6, 2]


def test_a_witness_that_signed_twice_counts_once_with_its_latest_time() -> None:
    signer = Signer(bytes.fromhex(COSIGNED["witness_seed"]))
    note = parse(COSIGNED["note"])
    name = "witness.example/one"
    for time in (5, 1767225601, 2**63 - 1):
        more = note._replace(signatures=(*note.signatures, cosign(note.text, name, signer, time)))
        [told] = agree([("checkpoint", more.render(), "default", KEYS, [WITNESS])])
        assert told["witnesses"] == [[name, str(max(time, 1767225600))]]
