"""Explains the outcome of a verification to people: what is proven and what isn't, the findings,
and the entries before and after each."""

import hashlib
from typing import Any

import orjson

from policies.ground.log_line import plural, printable
from policies.trail.findings import Finding, Reason
from policies.trail.log_file.coding import plain_entry
from policies.trail.verdict.outcome import Level, NotCompared, Outcome

_INCOMPLETE = {
    Reason.ENTRIES_MISSING,
    Reason.LOG_BEHIND_CHECKPOINT,
    Reason.FILE_TRUNCATED,
    Reason.PURGE_UNCOVERED,
    Reason.SOURCE_GAP,
    Reason.INCARNATION,
}
"""The reasons of findings which say that something is missing, rather than changed."""
_OF_DOCUMENTS = {Reason.DOCUMENT_MISSING, Reason.DOCUMENT_MISMATCH}
_OF_LEVEL = {Reason.QUORUM_MISSING}
"""The reasons of findings which say that a level of proof is missing, not that anything in the log
is wrong."""
MOST_SHOWN = 20
MOST_SILENCES = 5


def summary(outcome: Outcome) -> str:
    """Return the summary of an outcome for standard output, without a final newline."""
    lines = [_headline(outcome), ""]
    lines += _table(
        [
            ("log", outcome.log),
            ("entries", _entries(outcome)),
            ("integrity", _integrity(outcome)),
            ("completeness", _completeness(outcome)),
            ("freshness", _freshness(outcome)),
            *[("silence", each) for each in _silences(outcome)],
            ("level", _level(outcome)),
            *[("signed by", outcome.covered_by)] * bool(outcome.covered_by),
            *[("fingerprint", f"SHA-256 {each} of the log's key") for each in outcome.fingerprints],
            *[("witness", each) for each in outcome.witnesses],
            ("openings", _openings(outcome)),
            ("documents", documents(outcome)),
            *_recompute(outcome),
            *[("not compared", not_compared(each)) for each in outcome.not_compared],
            *[("note", each) for each in outcome.notes],
        ]
    )
    if outcome.findings:
        lines += ["", "findings:"]
        lines += [
            f"  {each.reason}: {_said(each, outcome)}" for each in outcome.findings[:MOST_SHOWN]
        ]
        more = len(outcome.findings) + outcome.more_findings - MOST_SHOWN
        if more > 0:
            lines.append(f"  and {more} more")
    if outcome.neighbours:
        lines += ["", _title(outcome)]
        lines += [f"  {each}" for each in outcome.neighbours]
    if not outcome.pinned and outcome.claimed_keys:
        lines += ["", "The log claims these keys. Ask its owner over another channel which of them"]
        lines += ["is right, and give it with --key:"]
        lines += [f"  {each}" for each in outcome.claimed_keys]
    # INVARIANT: what the file says can't look like a line of ours.
    return "\n".join(map(printable, lines))


def _headline(outcome: Outcome) -> str:
    if outcome.valid and outcome.not_compared:
        return f"INCOMPLETE: {outcome.subject} holds, but a checkpoint given was not compared"
    if outcome.valid and outcome.not_derived and outcome.recomputed is None:
        return f"INCOMPLETE: {outcome.subject} holds, but not all of its documents were checked"
    if outcome.valid and outcome.not_derived:
        return f"INCOMPLETE: {outcome.subject} holds, but decisions could not be derived"
    if outcome.valid and not outcome.spools_followed:
        return f"INCOMPLETE: {outcome.subject} holds, but not all of its spools were followed"
    if outcome.valid:
        return f"OK: {outcome.subject} holds"
    count = len(outcome.findings) + outcome.more_findings
    return f"NOT VALID: {outcome.subject}: {count} finding{'s' if count != 1 else ''}"


def not_compared(each: NotCompared) -> str:
    """Return a line of text about a checkpoint that could not be compared."""
    return f"the checkpoint given, of {plural(each.size, 'entry')}, {each.why}"


def _table(rows: list[tuple[str, str]]) -> list[str]:
    return [f"{name:<13} {text}" for name, text in rows]


def _entries(outcome: Outcome) -> str:
    if not outcome.entries:
        return "none"
    text = f"{outcome.entries:,} (seq {outcome.first} to {outcome.size - 1})"
    text += f", {outcome.decisions:,} of them decisions"
    return text + f", from {_spools(outcome.sources)}" * bool(outcome.sources)


def _integrity(outcome: Outcome) -> str:
    other = _INCOMPLETE | _OF_LEVEL
    changed = [each for each in outcome.findings if each.reason not in other]
    if changed:
        return f"BROKEN: {_said(changed[0], outcome)}"
    if outcome.covered is None:
        return "the entries fit one another; no checkpoint proves that they are the ones recorded"
    if not outcome.unproven_tail:
        return "chain, tree and checkpoints agree for every entry"
    return f"chain, tree and checkpoints agree for the first {plural(outcome.covered, 'entry')}"


def _completeness(outcome: Outcome) -> str:
    missing = [each for each in outcome.findings if each.reason in _INCOMPLETE]
    if missing:
        return f"BROKEN: {missing[0].message}"
    if not outcome.spools_followed:
        return (
            f"NOT PROVEN: only {outcome.sources:,} spools were followed; records of others could "
            "have been dropped before they came into the log"
        )
    ends = ""
    if outcome.partial:
        ends = "; the file is a part by its own header: it tells nothing of entries from "
        ends += f"{outcome.size} on"
    if outcome.first > outcome.oldest:
        return f"a part of the log: nothing before seq {outcome.first} is in it{ends}"
    begins = "from the first entry"
    if outcome.first:
        begins = f"from seq {outcome.first}: what precedes it was purged"
    if not outcome.unproven_tail:
        return f"{begins} to the latest checkpoint, without a gap{ends}"
    return (
        f"{begins}, without a gap; {_last(outcome.unproven_tail)} covered by no "
        f"checkpoint, so newer ones could be missing{ends}"
    )


def _freshness(outcome: Outcome) -> str:
    if not outcome.last_ts:
        return "there is no entry"
    text = f"the last entry is of {outcome.last_ts}"
    return text + f", the file was made {outcome.made_at}" * bool(outcome.made_at)


def _silences(outcome: Outcome) -> list[str]:
    """Return lines of text about times in which nothing was recorded, though a running service
    records a heartbeat every hour."""
    lines = []
    if outcome.silent_at_end:
        lines.append(
            f"nothing after {outcome.last_ts}: the service was stopped, or newer entries are "
            "missing in the file"
        )
    kept = sorted(outcome.silences.longest(), key=lambda each: -each.duration)
    lines += [
        f"{_hours(each.duration)} before seq {each.seq}: nothing from {each.begin} to {each.end}"
        for each in kept[:MOST_SILENCES]
    ]
    if more := outcome.silences.count - len(lines) + outcome.silent_at_end:
        lines.append(f"and {more:,} shorter ones of more than an hour")
    return lines


def _hours(duration: int) -> str:
    minutes = duration // 60_000_000
    return f"{minutes // 60:,} h {minutes % 60:02} min"


def _level(outcome: Outcome) -> str:
    if not outcome.level_holds:
        return "none: a signature proves nothing of a log with findings"
    if outcome.level is Level.WITNESSED:
        return "witnessed: the owner could not show others another log"
    if outcome.level is Level.SIGNED and any(each.reason in _OF_LEVEL for each in outcome.findings):
        return (
            "NOT witnessed as asked, only signed: witnesses cosign within seconds, so export it "
            "again; if that does not help, ask the owner and the witness why"
        )
    if outcome.level is Level.SIGNED:
        return "signed: only who has the log's key could have made another one"
    if outcome.pinned:
        return "unsigned: no checkpoint that was read is signed by a pinned key"
    return "unsigned: no key is pinned, so anyone could have made this log"


def _openings(outcome: Outcome) -> str:
    text = outcome.openings
    if outcome.erased:
        text += f"; those of {plural(outcome.erased, 'entry')} were erased, as recorded"
    if outcome.erased_later:
        text += f", {outcome.erased_later:,} of them by erasures behind the file's end"
    if outcome.erased_unproven:
        text += f", {outcome.erased_unproven:,} by erasures that no checkpoint covers yet"
    return text


def documents(outcome: Outcome) -> str:
    """Return a line of text about the policy documents, whose digests the decisions cite."""
    if outcome.documents is None and outcome.findings:
        return "not checked: what was found ended the walk"
    if outcome.documents is None:
        return "policy documents: not checked (a verification of an export checks them)"
    wrong = [each for each in outcome.findings if each.reason in _OF_DOCUMENTS]
    if wrong:
        return f"BROKEN: {wrong[0].message}"
    text = f"{plural(outcome.documents, 'policy document')}, as cited by the decisions"
    for each in outcome.documents_gone if outcome.recomputed is None else ():
        text += f"; {plural(each.decisions, 'decision')} without theirs, which {each.why}"
    return text


def _recompute(outcome: Outcome) -> list[tuple[str, str]]:
    if outcome.recomputed is None:
        return []
    text = _follow(outcome.recomputed)
    if outcome.not_recomputable:
        text += f"; {outcome.not_recomputable:,} could not be derived"
    gone = [f"{each.decisions:,} of these {each.why}" for each in outcome.not_derived]
    return [("decisions", each) for each in (text, *gone)]


def _follow(count: int) -> str:
    if count == 1:
        return "1 decision follows again from its facts and policies"
    return f"{count:,} decisions follow again from their facts and policies"


def _spools(count: int) -> str:
    return "1 enforcement point's spool" if count == 1 else f"{count} enforcement points' spools"


def _last(count: int) -> str:
    return "the last entry is" if count == 1 else f"the last {count:,} entries are"


def _said(found: Finding, outcome: Outcome) -> str:
    """Return a finding's message. For a broken chain, say first which entries may have been
    changed."""
    return _changed(found, outcome) + found.message


def _changed(found: Finding, outcome: Outcome) -> str:
    # The finding's place is the entry whose `prev` does not fit. Most often that one is sound, and
    # the change is in the entry before, whose hash it still names.
    if found.reason is not Reason.CHAIN_BROKEN or found.seq is None:
        return ""
    if found.seq <= outcome.first and not outcome.earlier:  # nothing here precedes it
        return f"the `prev` of entry {found.seq} was changed: "
    return f"entry {found.seq - 1}, or the `prev` of {found.seq}, was changed: "


def _title(outcome: Outcome) -> str:
    """Return the heading above the list of the bad entry and its neighbours."""
    if any(_changed(each, outcome) for each in outcome.findings):
        return "where the chain breaks, `before` or `here`:"
    return "the first bad entry:"


MOST_BYTES = 90


def neighbours(chunk: bytes, place: int, before: bytes) -> list[str]:
    """Return lines that describe entry number `place` of the lines in `chunk`, the entry before and
    the entry after. `before` is the line that precedes the chunk."""
    lines = [before, *(line for line in chunk.split(b"\n") if line.startswith(b'{"entry":'))]
    shown = []
    for offset, mark in ((0, "before"), (1, "here"), (2, "after")):
        at = place + offset
        if at < len(lines) and lines[at].startswith(b'{"entry":'):
            shown.append(f"{mark:<6}  {describe(entry_of(lines[at]))}")
    return shown


def entry_of(line: bytes) -> bytes:
    parts = plain_entry(line, b',"openings":' in line)
    return line if parts is None else parts.entry


def describe(raw: bytes) -> str:
    """Return a line with an entry's place, time, kind, id and leaf hash. If the bytes are no entry,
    show their beginning."""
    try:
        entry = orjson.loads(raw)
        shown = [_text(entry[name]) for name in ("seq", "ts", "kind", "eid")]
    except (ValueError, TypeError, LookupError):
        return f"not an entry: {raw[:MOST_BYTES]!r}"
    leaf = hashlib.sha256(b"\0" + raw).hexdigest()
    return f"seq {'  '.join(shown)}  leaf {leaf}"


def _text(value: Any) -> str:
    # A terminal must not be steered by what an entry holds.
    text = str(value)[:MOST_BYTES]
    return text if text.isprintable() else repr(text)
