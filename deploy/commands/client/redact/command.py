"""`sluice redact`: asks, erases until nothing is left, and reports.

What is reported is what the log says of itself afterwards, not what the answers said: an answer may
be lost on its way, and the erasure that it told of is recorded all the same.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from deploy.commands.client.client import Client, common
from deploy.commands.client.connection import ApiUnreachable, RequestRefused
from deploy.commands.client.credentials import UnusableArguments
from deploy.commands.client.new_file import new_file
from deploy.commands.client.redact.report import Report
from deploy.commands.client.redact.target import Target, add_options, target_of

PATH = "/v1/audit/redact"
LISTED = "/v1/audit/redactions"
SIDECARS = "/v1/sidecars"
SECONDS = 600.0
"""How long one request may take: it erases up to 20,000 entries, with pauses for other writers."""
MAX_IDLE = 3
"""Answers in a row that say that more is left, and that nothing was erased."""
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
        erasure = _Erasure(client, target, options.reason)
        problem: Exception | KeyboardInterrupt | None = None
        try:
            erasure.run()
        except (RequestRefused, ApiUnreachable, KeyboardInterrupt) as stopped:
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


class _Erasure:
    """One erasure, in as many requests as it takes."""

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
                raise ApiUnreachable(
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
    """Write the report. Returns the exit code: what is erased stays so if the disk is full."""
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
    """Tell what the log does not hold yet: it would bring the person back."""
    sidecars = [each for page in client.api.pages(SIDECARS, {}, None) for each in page]
    if waiting := sum(each["spool_depth"] for each in sidecars):
        print(
            f"sluice: sidecars have {waiting} records to deliver: run this again once SPOOL is 0 "
            "for all of them in `sluice fleet`",
            file=sys.stderr,
        )
