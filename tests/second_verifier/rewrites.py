"""What an insider does to a log, each a function with the name of what it does: the draft changes
before it is written, so every hash and signature fits again."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.second_verifier.drafts import LOG, Draft
from tests.second_verifier.drawing import WORDS, chain_sources
from tests.second_verifier.signers import Signer, base64

Rewrite = Callable[[Draft, Random], None]


def _some(draft: Draft, random: Random) -> int:
    return random.randrange(draft.start, draft.stop)


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


def mark_otherwise(draft: Draft, random: Random) -> None:
    """A mark that there isn't, one twice, none, in the wrong order, or of the service's own."""
    odd: list[object] = [["late"], ["time_doubtful", "time_doubtful"], [], [[]], "time_doubtful"]
    odd.append(["time_doubtful", "agent_foreign"])
    draft.entries[_some(draft, random)]["marks"] = random.choice(odd)


def change_a_rejected_record(draft: Draft, random: Random) -> None:
    """The hash of another record, no hash, another core, other members."""
    hashed: list[tuple[str, Any]] = [("hash", base64(random.randbytes(32))), ("hash", "A")]
    for entry in draft.entries[draft.start : draft.stop]:
        if entry["kind"] == "rejected_record":
            others: list[tuple[str, Any]] = [("core", {"text": "another"}), ("more", 1)]
            name, value = random.choice((*hashed, *others))
            entry["pub"][name] = value


def sign_with_another_key(draft: Draft, random: Random) -> None:
    draft.stranger = Signer.numbered(99)
    draft.entries[_some(draft, random)]["pub"]["text"] = "rewritten"
    chain_sources(draft)


def deny_a_source_its_beginning(draft: Draft, random: Random) -> None:
    firsts = [each["src"] for each in draft.entries[draft.start :] if "src" in each]
    if firsts:
        firsts[0] |= {"n": random.choice((0, -1)), "prev": base64(random.randbytes(32))}


def erase_without_an_excuse(draft: Draft, random: Random) -> None:
    """The `redact` entry names itself, later entries, or what is no range."""
    for seq, entry in enumerate(draft.entries):
        if entry["kind"] == "redact":
            first = entry["pub"]["events"][0][0]
            odd = [[first, seq], [first, seq + 9], [-1, seq - 1], [first], [first, 0.5], first]
            entry["pub"]["events"] = random.choice(([random.choice(odd)], None, {}))


def misstate_a_purge(draft: Draft, random: Random) -> None:
    for seq, entry in enumerate(draft.entries):
        if entry["kind"] == "purge":
            hashes = [base64(random.randbytes(32)) for _ in range(random.randint(0, 2))]
            lies: list[tuple[str, Any]] = [
                ("frontier", hashes),
                ("root", hashes[-1] if hashes else None),
            ]
            lies += [("last", base64(random.randbytes(32))), ("frontier", None)]
            lies += [("size", size) for size in (-1, draft.kept - 1, draft.kept + 1, seq + 1, "1")]
            name, lie = random.choice(lies)
            entry["pub"][name] = lie


def forge_the_frontier(draft: Draft, random: Random) -> None:
    """The entries before a part are others, and no checkpoint within the part says so."""
    draft.frontier = [random.randbytes(32) for _ in range(draft.start.bit_count())]
    if random.random() < 0.7:
        draft.checkpoints -= set(range(draft.start, draft.stop + 1))


def misname_an_origin(draft: Draft, random: Random) -> None:
    """Signed with the log's key, but under an origin that no incarnation has."""
    if draft.checkpoints:
        odd = ("#", "#0", "#01", "#1x", "#-1", "##1", "#\u0661", "#12345678901234567890", "2", "/x")
        draft.origins[random.choice(sorted(draft.checkpoints))] = LOG + random.choice(odd)


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


REWRITES: tuple[Rewrite, ...] = (
    duplicate_an_id, swap_an_opening, erase_an_opening, invent_an_opening, turn_time_back,
    name_another_log, skip_a_number, cut_the_chain, raise_the_version, add_a_member,
    remove_a_member, drop_a_source_record, swap_two_records, repeat_a_source_record,
    change_a_source_record, deny_a_source_its_beginning, erase_without_an_excuse,
    misstate_a_purge, mark_otherwise, change_a_rejected_record, forge_the_frontier,
    misname_an_origin, sign_with_another_key, leave_a_witness_out, sign_nothing,
)  # fmt: skip
