"""Reads, writes and verifies `report.json`, format `sluice-report/1`. Verification checks each
entry, its openings (the values behind the entry's salted hashes), its inclusion proof, and who
signed the checkpoint.

`policies/trail/README.md` ("A report") describes the format. Verification needs no export, but
without the export it can't tell what a report left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from deploy.commands.verify.check import CheckOptions
from policies.ground.canonical import b64, unb64
from policies.ground.log_line import plural, printable
from policies.trail.checkpoint import Checkpoint
from policies.trail.entry import EntryFinding, check_entry, check_openings, load_entry
from policies.trail.findings import Finding, Reason
from policies.trail.merkle_tree import leaf_hash
from policies.trail.proofs import tree_proofs
from policies.trail.proofs.tree_proofs import MAX_HASHES
from policies.trail.verdict.checkpoint_judge import CheckpointJudge, KnownNotes
from policies.trail.verdict.outcome import Level, Outcome
from policies.trail.verdict.summary import documents, not_compared
from policies.trail.verdict.trusted_keys import TrustedKeys

FORMAT = "sluice-report/1"
MAX_BYTES = 256 * 1024 * 1024
"""The limit on the size of a `report.json`, in bytes."""
_HASH = 32


class BadReport(ValueError):
    """the bytes are not a report"""


class Item(NamedTuple):
    """An entry in a report, as its stored bytes. `openings` are its stored openings, None if the
    export left them out. `proof` are the hashes of its inclusion proof (RFC 9162, 2.1.3), None if
    the checkpoint does not cover the entry."""

    entry: bytes
    openings: bytes | None
    proof: list[bytes] | None


@dataclass(slots=True)
class Evidence:
    """The content of a report. `selection` maps the options that the report was made with to their
    values. `keys` are the log's keys as the export's header claims them. `note` is the checkpoint
    that the proofs lead to, None if there is none. `export` describes the export file: `entries`,
    `from`, `to`, `made_at`, `sha256`."""

    log: str
    origin: str
    selection: dict[str, str]
    export: dict[str, Any]
    keys: list[dict[str, Any]]
    note: str | None
    items: list[Item] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        """Serialise the report as the bytes of `report.json`. The same report always gives the same
        bytes."""
        wire = {
            "format": FORMAT,
            "log": self.log,
            "origin": self.origin,
            "selection": self.selection,
            "export": self.export,
            "keys": self.keys,
            "checkpoint": self.note,
            "entries": [
                {
                    "entry": item.entry.decode(),
                    "openings": None if item.openings is None else item.openings.decode(),
                    "proof": None if item.proof is None else [b64(each) for each in item.proof],
                }
                for item in self.items
            ],
        }
        return orjson.dumps(wire, option=orjson.OPT_INDENT_2) + b"\n"


def begins(first: bytes) -> bool:
    """Return whether a file that begins with these bytes claims to be a report."""
    return b"".join(first[:100].split()).startswith(b'{"format":"sluice-report/1"')


def parse(raw: bytes) -> Evidence:
    """Parse the bytes of a `report.json`. Nothing in the result is verified. Raises `BadReport`."""
    if len(raw) > MAX_BYTES:
        raise BadReport(f"it has more than {MAX_BYTES} bytes")
    try:
        wire = orjson.loads(raw)
        if wire["format"] != FORMAT:
            raise BadReport(f"its format is not `{FORMAT}`")
        for name in ("log", "origin"):
            _is(wire[name], str)
        for name in ("selection", "export"):
            _is(wire[name], dict)
        _is(wire["keys"], list)
        for key in wire["keys"]:
            _is(key["key"], str)
        _is(wire["checkpoint"], (str, type(None)))
        items = [_item(each) for each in _is(wire["entries"], list)]
    except (ValueError, TypeError, LookupError) as error:
        raise BadReport(f"it is not in the form of one: {str(error)[:200]}") from error
    return Evidence(
        wire["log"],
        wire["origin"],
        wire["selection"],
        wire["export"],
        wire["keys"],
        wire["checkpoint"],
        items,
    )


def _item(wire: Any) -> Item:
    entry, openings, proof = wire["entry"], wire["openings"], wire["proof"]
    _is(entry, str)
    _is(openings, (str, type(None)))
    hashes = None if proof is None else [unb64(each) for each in _is(proof, list)]
    if hashes is not None and (
        len(hashes) > MAX_HASHES or any(len(each) != _HASH for each in hashes)
    ):
        raise BadReport(f"a proof is not of up to {MAX_HASHES} hashes of {_HASH} bytes")
    return Item(entry.encode(), None if openings is None else openings.encode(), hashes)


def _is(value: Any, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(value, kind):
        raise BadReport(f"`{value!r:.60}` has the wrong type")
    return value


LEVELS = {
    Level.UNSIGNED: "unsigned: no key is pinned, so anyone could have made this report",
    Level.SIGNED: "signed: only who has the log's key could have made another one",
    Level.WITNESSED: "witnessed: the owner could not show others another log",
}


@dataclass(slots=True)
class ReportOutcome:
    """The result of verifying a report. `outcome` holds the findings and the level of trust.
    `entries` counts the report's entries, `unproven` those that no checkpoint covers, `unopened`
    those that lack some of their openings."""

    outcome: Outcome
    entries: int = 0
    unproven: int = 0
    unopened: int = 0

    @property
    def valid(self) -> bool:
        return self.outcome.valid

    @property
    def exit_code(self) -> int:
        """The exit code, as for the verification of an export; also 2 if no checkpoint covers some
        entry, since anyone can invent such an entry."""
        return self.outcome.exit_code or (2 if self.unproven else 0)

    def to_wire(self) -> dict[str, Any]:
        """Return the result as JSON, in the form that the verification of an export has.
        `unproven_tail` counts the entries that no checkpoint covers."""
        wire = self.outcome.to_wire()
        # A few entries of a log say nothing of its completeness, erasures and silences.
        del wire["erased"], wire["freshness"], wire["completeness"], wire["spools_followed"]
        return {**wire, "entries": self.entries, "unproven_tail": self.unproven}

    def text(self) -> str:
        """Return the result as text for standard output, without a final newline."""
        outcome = self.outcome
        lines = [self._headline(), ""]
        verb = "is" if self.entries == 1 else "are"
        proven = (
            f"{self.entries - self.unproven:,} of {plural(self.entries, 'entry')} {verb} in the log"
        )
        rows = [
            ("log", outcome.log),
            ("entries", proven if self.valid else "NOT PROVEN, see the findings"),
            ("completeness", "a report can leave entries out; only the export shows all of them"),
            ("level", LEVELS[outcome.level] if outcome.level_holds else "none, see the findings"),
            *[("signed by", outcome.covered_by)] * bool(outcome.covered_by),
            *[("fingerprint", f"SHA-256 {each} of the log's key") for each in outcome.fingerprints],
            *[("witness", each) for each in outcome.witnesses],
            ("openings", f"checked; {self.unopened:,} entries lack some" * bool(self.unopened)
             or "checked"),
            *[("documents", documents(outcome))] * self.valid,
            *[("not compared", not_compared(each)) for each in outcome.not_compared],
            *[("note", each) for each in outcome.notes],
        ]  # fmt: skip
        lines += [f"{name:<13} {text}" for name, text in rows]
        if outcome.findings:
            lines += ["", "findings:"]
            lines += [f"  {each.reason}: {each.message}" for each in outcome.findings[:20]]
        if not outcome.pinned and outcome.claimed_keys:
            lines += ["", "The report claims these keys. Ask the log's owner over another channel"]
            lines += ["which of them is right, and give it with --key:"]
            lines += [f"  {each}" for each in outcome.claimed_keys]
        return "\n".join(map(printable, lines))

    def _headline(self) -> str:
        subject = self.outcome.subject
        if not self.valid:
            count = len(self.outcome.findings) + self.outcome.more_findings
            return f"NOT VALID: {subject}: {count} finding{'s' * (count != 1)}"
        if self.outcome.not_compared:
            return f"INCOMPLETE: {subject} holds, but a checkpoint given was not compared"
        if self.unproven:
            return f"INCOMPLETE: {subject} has entries that no checkpoint proves"
        return f"OK: {subject} holds"


def check_report(raw: bytes, subject: str, options: CheckOptions) -> ReportOutcome:
    """Verify the bytes of a `report.json`; `subject` names it in the result. Raises `Unusable` if
    the option `--checkpoint` names a checkpoint of another log."""
    result = ReportOutcome(Outcome(subject))
    try:
        report = parse(raw)
    except BadReport as error:
        result.outcome.add(Finding(None, Reason.FILE_MALFORMED, f"the report: {error}"))
        return result
    _check(report, result, options)
    return result


def _check(report: Evidence, result: ReportOutcome, options: CheckOptions) -> None:
    outcome = result.outcome
    outcome.log, outcome.origin = report.log, report.origin
    outcome.claimed_keys = [str(key["key"]) for key in report.keys]
    keys = TrustedKeys(options.keys, report.keys)
    judge = CheckpointJudge(report.log, keys, options.witnesses, options.quorum)
    checkpoint = _checkpoint(report.note, judge, outcome)
    last = -1
    for item in report.items:
        result.entries += 1
        last = _check_item(item, last, report.log, checkpoint, result)
    _conclude(report, judge, checkpoint, outcome, options.known)


def _checkpoint(note: str | None, judge: CheckpointJudge, outcome: Outcome) -> Checkpoint | None:
    if note is None:
        return None
    read = judge.read(note, None)
    if isinstance(read, Finding):
        outcome.add(read)
        return None
    parsed, checkpoint = read
    # Each proof leads to this root by itself, so that it is only asked who signed it.
    if fault := judge.judge(parsed, checkpoint, checkpoint.root):
        outcome.add(fault)
    return checkpoint


def _conclude(
    report: Evidence,
    judge: CheckpointJudge,
    checkpoint: Checkpoint | None,
    outcome: Outcome,
    texts: Sequence[str],
) -> None:
    known = KnownNotes(judge, report.origin, texts)
    roots = {}
    if checkpoint is not None:
        outcome.size = checkpoint.size
        roots = {checkpoint.size: checkpoint.root}
    known.compare(outcome, roots, whole=False)
    judge.conclude(outcome, whole=True)


def _check_item(
    item: Item, last: int, log: str, checkpoint: Checkpoint | None, result: ReportOutcome
) -> int:
    """Verify one entry and add its first finding, if any, to `result`. `last` is the number of the
    entry before it. Returns the entry's number, or `last` if it has none."""
    add = result.outcome.add
    where = f"entry {result.entries} of the report"
    try:
        entry = load_entry(item.entry)
        check_entry(item.entry, entry)
        seq: int = entry["seq"]
        if type(seq) is not int or entry["v"] != 1 or entry["log"] != log:
            add(Finding(None, Reason.WRONG_LOG, f"{where}: is not one of log `{log:.80}`"))
            return last
        if seq <= last:
            add(Finding(seq, Reason.WRONG_SEQ, f"{where}: seq {seq} follows seq {last}"))
            return last
        if item.openings is None or check_openings(entry, item.openings) is not None:
            result.unopened += bool(entry["cm"])
    except EntryFinding as error:
        add(Finding(None, error.reason, f"{where}: {error}"))
        return last
    except (ValueError, TypeError, LookupError) as error:
        add(Finding(None, Reason.NOT_AN_ENTRY, f"{where}: can't be read: {str(error)[:200]}"))
        return last
    if checkpoint is None or seq >= checkpoint.size:
        result.unproven += 1
    elif item.proof is None or not tree_proofs.proves_inclusion(
        leaf_hash(item.entry), seq, checkpoint.size, item.proof, checkpoint.root
    ):
        message = f"seq {seq}: its proof does not lead to the checkpoint's root"
        add(Finding(seq, Reason.ROOT_MISMATCH, message))
    return seq
