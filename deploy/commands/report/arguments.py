"""Reads the arguments of `sluice report`, and selects the entries of a log that belong to the
report.

Opens nothing but key files.

Fed with the entries in order; keeps their numbers only.
"""

import argparse
from dataclasses import dataclass
from typing import Any

import orjson

from policies.ground.typed_time import ACCEPTED, UnreadableTime, read_time
from policies.trail.entry import index_of
from policies.trail.proofs.signed_note import ED25519
from policies.trail.verdict.arguments import key_argument
from policies.trail.verdict.outcome import Unusable

MOST_ENTRIES = 20_000
"""Entries of a report: the page must be readable, and both files are made in memory."""
_MEANWHILE = frozenset({"change", "redact", "purge", "gap", "incarnation"})
"""Kinds that tell what happened to the configuration and to the log."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a report is about: `by` is `session`, `agent`, `user` or `event`, `value` its id. The
    range is in microseconds since 1970 UTC, `until` exclusive; None without a limit."""

    by: str
    value: str
    begin: int | None = None
    until: int | None = None

    def within(self, ts: int) -> bool:
        return (self.begin is None or ts >= self.begin) and (self.until is None or ts < self.until)

    def matches(self, entry: dict[str, Any], openings: bytes | None) -> bool:
        """Whether a decoded `decision` is about it. The range is not looked at."""
        if self.by == "event":
            return bool(entry["eid"] == self.value)
        if self.by == "user":
            # Without its opening, nothing says whose decision it was.
            opened = orjson.loads(openings) if openings else {}
            return "user_id" in opened and opened["user_id"][1] == self.value
        return bool(entry["pub"]["request"].get(f"{self.by}_id") == self.value)


class Selection:
    """One pass over a log. `seqs` are the numbers of the entries that belong to the report."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self.seqs: set[int] = set()
        self._events: set[str] = set()
        # Changes since the last entry selected: they count once another one follows.
        self._pending: list[int] = []

    def see(self, raw: bytes, openings: bytes | None) -> None:
        """The next entry. It was verified before, so it has all members."""
        entry = orjson.loads(raw)
        kind, seq = entry["kind"], entry["seq"]
        if kind == "decision":
            if self._asked.matches(entry, openings) and self._asked.within(index_of(entry).ts):
                self._events.add(entry["eid"])
                self._select(seq)
        elif kind == "lineage":
            # What followed from a decision belongs to it, however late it was.
            if entry["pub"]["event"]["id"] in self._events:
                self._select(seq)
        elif kind in _MEANWHILE:
            self._see_change(entry, seq)

    def _see_change(self, entry: dict[str, Any], seq: int) -> None:
        asked = self._asked
        if asked.begin is not None or asked.until is not None:
            # With a range asked for, "meanwhile" is that range.
            if asked.within(index_of(entry).ts):
                self._add(seq)
        elif entry["pub"].get("target") == asked.value:
            self._add(seq)  # the session or agent itself was changed, before or after
        elif self._events and len(self._pending) <= MOST_ENTRIES:
            # One more than the limit is enough to be refused when they count.
            self._pending.append(seq)

    def _select(self, seq: int) -> None:
        self._add(seq)
        for each in self._pending:
            self._add(each)
        self._pending.clear()

    def _add(self, seq: int) -> None:
        self.seqs.add(seq)
        if len(self.seqs) > MOST_ENTRIES:
            raise Unusable(
                f"more than {MOST_ENTRIES:,} entries belong to the report; narrow it with "
                "--from and --to"
            )


_WHAT = ("session", "agent", "user", "event")
_DESCRIPTION = """\
Writes what an export of the audit trail says of one session, agent, user or event: DIR/report.html
to read and print, and DIR/report.json with proofs, which `sluice verify` checks by itself. The
export is verified first."""
_EPILOG = """\
Exit codes: 0 written; 1 the export does not hold, nothing is written; 2 unusable arguments or
file."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="sluice report", description=_DESCRIPTION, epilog=_EPILOG)
    made.add_argument("file", metavar="FILE", help="an export; gzip and zstd are recognised")
    group = made.add_mutually_exclusive_group(required=True)
    for name in _WHAT:
        group.add_argument(f"--{name}", metavar="ID", help=f"report on this {name}")
    made.add_argument(
        "--from", dest="begin", metavar="TIME",
        help=f"only from this time on: {ACCEPTED}",
    )  # fmt: skip
    made.add_argument("--to", dest="until", metavar="TIME", help="only before this time")
    made.add_argument(
        "--key", action="append", default=[], type=key_argument(ED25519), metavar="KEY",
        help="a key that signs the log, as for `sluice verify`; may be repeated",
    )  # fmt: skip
    made.add_argument(
        "-o", "--output", required=True, metavar="DIR",
        help="the folder for report.html and report.json; made if absent",
    )  # fmt: skip
    return made


def parse(arguments: list[str], now: int) -> tuple[argparse.Namespace, Asked]:
    """The options, and what they ask for. `now` is in microseconds. Raises `Unusable`; `SystemExit`
    like argparse."""
    options = parser().parse_args(arguments)
    by = next(name for name in _WHAT if getattr(options, name) is not None)
    begin, until = _time("--from", options.begin, now), _time("--to", options.until, now)
    if begin is not None and until is not None and begin >= until:
        raise Unusable("--from is not before --to")
    if options.file == "-":
        raise Unusable("FILE is read more than once, so it can't be standard input")
    return options, Asked(by, getattr(options, by), begin, until)


def _time(option: str, text: str | None, now: int) -> int | None:
    try:
        return None if text is None else read_time(text, now)
    except UnreadableTime as error:
        raise Unusable(f"{option}: {error}") from error
