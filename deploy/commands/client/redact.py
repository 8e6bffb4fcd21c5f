"""`sluice redact`: erases a person's values from the audit trail. Asks for confirmation, sends
requests until nothing is left to erase, and prints a report for the person who asked: which values
were erased, which stay and why, and how to check that.

A user's id is personal data, and every user of a machine can read a process's arguments. The id may
therefore also come from a file or from standard input. The report holds none of the erased values.

The report is made from the log's own records of the erasure, not from the API's responses: a
response may be lost on its way, but the erasure is recorded all the same.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.commands.client.client import Client, common
from deploy.commands.client.output import new_file
from policies.ground.process.api_client import ServiceUnusable, UnusableArguments

MAX_EVENTS = 1000
"""The API's limit on the events of one request. More events are refused rather than sent in several
requests: a legal hold on some of them would refuse only half of the erasure."""
MAX_ID = 4096


@dataclass(frozen=True, slots=True)
class Target:
    """The values to erase. `body` is the API's request, which may hold a user's id. `shown` and
    `text`, for the report and for messages, never hold it."""

    body: dict[str, Any]
    shown: dict[str, Any]
    text: str


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument(
        "--user",
        metavar="ID",
        help="erase this user's values; the id as the log has it. `-` reads it from standard "
        "input: other users of this machine can read the arguments of a process",
    )
    group.add_argument("--user-file", metavar="FILE", help="the same, with the id in a file")
    group.add_argument("--session", metavar="ID", help="erase the values of this session")
    group.add_argument("--event", metavar="ID", nargs="+", help="erase the values of these events")


def target_of(options: argparse.Namespace) -> Target:
    """Return the target that the options name. Raises `UnusableArguments`; its message never holds
    a user's id."""
    if options.session is not None:
        session = {"session_id": options.session}
        return Target(session, session, f"session {options.session}")
    if options.event is not None:
        if len(options.event) > MAX_EVENTS:
            raise UnusableArguments(f"at most {MAX_EVENTS} events can be named at a time")
        events = {"event_ids": options.event}
        return Target(events, events, f"{len(options.event)} events")
    return Target({"user_id": _user(options)}, {"user_id": "not shown"}, "a user")


def _user(options: argparse.Namespace) -> str:
    """Read the user's id from the option, from the file or from standard input, which must hold
    nothing but the id on one line."""
    try:
        if options.user_file is not None:
            with Path(options.user_file).open("rb") as file:
                return _one_line(file.read(MAX_ID + 1), f"`{options.user_file}`")
        if options.user != "-":
            return str(options.user)
        if sys.stdin.isatty():
            print("user id: ", end="", file=sys.stderr, flush=True)
            return _one_line(sys.stdin.readline().encode(), "the answer")
        return _one_line(sys.stdin.buffer.read(MAX_ID + 1), "standard input")
    except OSError as error:
        raise UnusableArguments(
            f"`{options.user_file or 'standard input'}` can't be read: {error.strerror}"
        ) from error


def _one_line(raw: bytes, where: str) -> str:
    try:
        text = raw.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise UnusableArguments(f"{where} is not UTF-8") from None
    # A list of ids would be taken for one id, which matches nothing, and looks like success.
    if not text or "\n" in text or len(raw) > MAX_ID:
        raise UnusableArguments(f"{where} does not hold one id on one line")
    return text


FIELDS = (
    "of each decision: the user's id (`user_id`) and the text of the query (`query`)",
    "of each action that was reported about such a decision: its `detail`",
    "of each session: the user's id (`user_id`)",
)
STAYS = (
    (
        "when which agent and role was allowed or denied which source, in which session, and why: "
        "the account of what the system did, which does not name the user"
    ),
    (
        "a salted commitment to each erased value, so that the hashes of the log still verify; its "
        "salt is erased too, and without it a guess at the value can't be tested"
    ),
    "the record of this erasure: by whom, when, why and of which entries, by their numbers",
    (
        "copies out of reach of the service: backups and write-ahead logs until they are rotated, "
        "earlier exports, and what sidecars have not delivered yet"
    ),
)
CHECKS = (
    "`GET /v1/audit/redactions` lists each erasure by `seq` and `hash`, as above",
    (
        "`sluice export -o log.ndjson` and `sluice verify log.ndjson` show that the entries named "
        "above have no openings, which held the values, and that everything else is unchanged"
    ),
    "the same command again erases nothing",
)


@dataclass(frozen=True, slots=True)
class Report:
    """The report on one erasure. `redactions` are the `redact` records that the log holds of it,
    oldest first, as the API lists them. `sessions` counts the sessions whose user was erased.
    `complete` is False if some values are still to be erased."""

    target: Target
    reason: str
    redactions: list[dict[str, Any]]
    sessions: int
    complete: bool

    @property
    def entries(self) -> int:
        """The number of log entries whose personal values were erased."""
        ranges = [each for entry in self.redactions for each in entry["events"]]
        return sum(last - first + 1 for first, last in ranges)

    def document(self) -> dict[str, Any]:
        return {
            "target": self.target.shown,
            "reason": self.reason,
            "complete": self.complete,
            "entries": self.entries,
            "sessions": self.sessions,
            "fields": list(FIELDS),
            "redactions": self.redactions,
            "stays": list(STAYS),
            "checks": list(CHECKS),
        }

    def lines(self) -> list[str]:
        """Return the report as lines of text for people."""
        if not self.redactions:
            return [
                (
                    f"nothing was erased: the log holds no value of {self.target.text}. An id is "
                    "matched exactly as recorded, which may be a mask such as `[EMAIL]`"
                )
            ]
        entries = _counted(self.entries, "entry", "entries")
        sessions = _counted(self.sessions, "session", "sessions")
        state = "complete" if self.complete else "NOT COMPLETE: the same command erases the rest"
        lines = [
            f"erasure of {self.target.text}: {state}",
            f"reason: {self.reason}",
            f"{entries} and {sessions} lost their personal values",
        ]
        for entry in self.redactions:
            lines.append(f"  {entry['timestamp']}, recorded as seq {entry['seq']} by {entry['by']}")
            lines.append(f"    hash {entry['hash']}")
            lines.append(f"    entries {_ranges(entry['events'])}")
        for title, points in (("erased", FIELDS), ("stays", STAYS), ("check", CHECKS)):
            lines += ["", f"{title}:", *(f"- {point}" for point in points)]
        return lines


def _ranges(ranges: list[list[int]]) -> str:
    each = (f"{first}" if first == last else f"{first} to {last}" for first, last in ranges)
    return ", ".join(each) or "none, only sessions"


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


PATH = "/v1/audit/redact"
LISTED = "/v1/audit/redactions"
SIDECARS = "/v1/sidecars"
SECONDS = 600.0
"""The seconds that one request may take: it erases up to 20,000 entries, and pauses in between so
that others can write."""
MAX_IDLE = 3
"""The number of responses in a row after which the command gives up, if each says that more is left
but erased nothing."""
YES = "yes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Erases for good what the audit trail holds of a person: user ids, queries and the details "
        "of reported actions. Everything else stays, and the log still verifies. Prints a report "
        "for the person who asked, without the erased values. A legal hold refuses all of it."
    )
    common(parser, _redact)
    add_options(parser)
    parser.add_argument(
        "--reason",
        metavar="TEXT",
        required=True,
        help="why, such as the number of the request; the log keeps it forever, so it must hold "
        "nothing personal",
    )
    parser.add_argument("--yes", action="store_true", help="erase without asking")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the report to this file too")


def _redact(client: Client, options: argparse.Namespace) -> int:
    target = target_of(options)
    with new_file(options.output) as file:
        if not options.yes and not _confirmed(target):
            raise UnusableArguments("nothing was erased: not confirmed")
        erasure = _ErasureRun(client, target, options.reason)
        problem: Exception | KeyboardInterrupt | None = None
        try:
            erasure.run()
        except (ServiceUnusable, KeyboardInterrupt) as stopped:
            problem = stopped
        report = erasure.report(complete=problem is None)
        if problem is not None and not report.redactions:
            raise problem
        code = _written(report, file)
        _print(client, report)
    if problem is not None:
        raise problem
    _note_undelivered(client)
    return code


class _ErasureRun:
    """Carries out one erasure, in as many requests as it takes."""

    def __init__(self, client: Client, target: Target, reason: str) -> None:
        self._api = client.api
        self._target = target
        self._reason = reason
        self._sessions = 0
        newest = next(self._api.pages(LISTED, {}, 1), [])
        self._before: int = newest[0]["seq"] if newest else -1

    def run(self) -> None:
        body, more, idle = {**self._target.body, "reason": self._reason}, True, 0
        while more:
            answer = self._api.request("POST", PATH, body=body, seconds=SECONDS).body
            self._sessions += answer["sessions"]
            more = answer["more"]
            # Another request may have erased the same meanwhile, but not again and again.
            idle = 0 if answer["seq"] is not None else idle + 1
            if more and idle == MAX_IDLE:
                raise ServiceUnusable(
                    "the control API says that more is left, but erases none of it"
                )

    def report(self, *, complete: bool) -> Report:
        found: list[dict[str, Any]] = []
        for page in self._api.pages(LISTED, {}, None):
            new = [each for each in page if each["seq"] > self._before]
            # Erasures of others that ran meanwhile have another reason.
            found += [each for each in new if each["reason"] == self._reason]
            if len(new) < len(page):
                break
        return Report(self._target, self._reason, found[::-1], self._sessions, complete)


def _confirmed(target: Target) -> bool:
    if not sys.stdin.isatty():
        raise UnusableArguments("standard input is not a terminal, so give --yes to erase")
    question = (
        f"This erases for good what the audit trail holds of {target.text}. Nothing brings it back."
        f"\nType `{YES}` to erase it: "
    )
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == YES


def _written(report: Report, file: int | None) -> int:
    """Write the report as JSON to the open file, if there is one. Returns the exit code: 1 if it
    can't be written, for example because the disk is full, although the values are erased by
    then."""
    if file is None:
        return 0
    try:
        with os.fdopen(os.dup(file), "w", encoding="ascii") as out:
            out.write(json.dumps(report.document(), indent=1) + "\n")
            out.flush()
            os.fsync(file)
    except OSError as error:
        print(f"sluice: the report can't be written: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _print(client: Client, report: Report) -> None:
    if client.out.as_json:
        client.out.document(report.document(), "")
        return
    for line in report.lines():
        client.out.document(None, line)


def _note_undelivered(client: Client) -> None:
    """Print how many records the sidecars have not delivered yet: they may hold the person's
    values, and would bring them into the log after the erasure."""
    sidecars = [each for page in client.api.pages(SIDECARS, {}, None) for each in page]
    if waiting := sum(each["spool_depth"] for each in sidecars):
        print(
            f"sluice: sidecars have {waiting} records to deliver: run this again once SPOOL is 0 "
            "for all of them in `sluice fleet`",
            file=sys.stderr,
        )


__all__ = ["add_arguments"]
