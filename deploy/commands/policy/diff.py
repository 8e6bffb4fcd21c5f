"""`sluice policy diff` compares two sets of policies, in files or in a service: it shows what the
second one newly allows and newly denies. `sluice policy impact` decides recorded requests again by
other policies, and shows which decisions differ."""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from deploy.commands.policy import text
from deploy.commands.policy.service import add_service, connect
from deploy.commands.policy.sources import Unusable, body, read
from deploy.commands.policy.text import AddCommand, add_output, typed_time
from policies.analysis.difference import by_role, difference
from policies.analysis.rows import difference_rows
from policies.definitions.model import Policy
from policies.ground.canonical import rfc3339
from policies.ground.clock import ACCEPTED
from policies.ground.process.api_client import ControlApiClient

LIVE = "live"
DIFF_ROUTE = "/v1/policies/diff"
SECONDS = 90.0
"""The timeout of a request, in seconds: a little longer than the service allows itself."""


def add_diff(add_command: AddCommand) -> None:
    """Add the command `diff` and its options."""
    command = add_command("diff", "what a change newly allows and newly denies, exactly")
    command.add_argument("old", metavar="OLD", help="a directory, a file, git:REV[:PATH], or live")
    command.add_argument(
        "new", metavar="NEW", help="likewise; `live` is what is in force in a service"
    )
    command.add_argument(
        "--fail-on",
        choices=("widened", "changed"),
        help="exit with 1 if anything is newly allowed, or if anything changes",
    )
    add_output(command)
    add_service(command)
    command.set_defaults(run=_run_diff)


def _run_diff(options: argparse.Namespace) -> int:
    found = _with_live(options) if LIVE in (options.old, options.new) else _of_files(options)
    allowed, denied = found["newly_allowed"], found["newly_denied"]
    if options.json:
        print(json.dumps(found))
    else:
        for row in allowed:
            text.show("+ ", text.change(row, "may newly"))
        for row in denied:
            text.show("- ", text.change(row, "may no longer"))
        print(f"{len(allowed)} newly allowed, {len(denied)} newly denied", file=sys.stderr)
    fails = {"widened": bool(allowed), "changed": bool(allowed or denied), None: False}
    return int(fails[options.fail_on])


def _of_files(options: argparse.Namespace) -> dict[str, Any]:
    old, new = (
        by_role(read(source, options.tenant, other))
        for source, other in ((options.old, options.new), (options.new, options.old))
    )
    return difference_rows(difference(_all(old), _all(new)), old, new)


def _with_live(options: argparse.Namespace) -> dict[str, Any]:
    """Return the difference between files and the policies in force in a service. The service
    itself compares, so that its policies are all of the same moment."""
    files = options.new if options.old == LIVE else options.old
    if files == LIVE:
        raise Unusable("`live` and `live` are the same: name files as OLD or NEW")
    policies = [body(each) for each in read(files, options.tenant)]
    api = connect(options)
    response = api.request("POST", DIFF_ROUTE, body={"policies": policies}, seconds=SECONDS)
    found: dict[str, Any] = response.body
    return found if options.old == LIVE else _turned(found)


def _turned(found: dict[str, Any]) -> dict[str, Any]:
    """Swap the two sides of a difference: newly allowed requests become newly denied ones, and the
    reverse."""
    return {
        name: [row | {"before": row["after"], "after": row["before"]} for row in found[other]]
        for name, other in (
            ("newly_allowed", "newly_denied"),
            ("newly_denied", "newly_allowed"),
        )
    }


def _all(roles: dict[str, list[Policy]]) -> Iterable[Policy]:
    return (policy for policies in roles.values() for policy in policies)


IMPACT_ROUTE = "/v1/policies/impact"
POLL_SECONDS = 0.5
BAR = 24
_RUNNING = "running"

Impact = Mapping[str, Any]
"""The response of `GET /v1/policies/impact/{impact_id}`: a run's state, its progress and its
results."""


def add_impact(add_command: AddCommand) -> None:
    """Add the command `impact` and its options."""
    command = add_command("impact", "what recorded traffic would have got under other policies")
    command.add_argument("new", metavar="NEW", help="a directory, a file, or git:REV:PATH")
    command.add_argument(
        "--since",
        metavar="TIME",
        default="7d",
        help=f"how far back: {ACCEPTED} (default: 7d)",
    )
    add_service(command)
    add_output(command)
    command.set_defaults(run=_run_impact)


def _run_impact(options: argparse.Namespace) -> int:
    policies = [body(each) for each in read(options.new, options.tenant)]
    api = connect(options)
    begin = rfc3339(typed_time(options, "--since", options.since))
    started = api.request("POST", IMPACT_ROUTE, body={"policies": policies, "from": begin}).body
    run = f"{IMPACT_ROUTE}/{started['impact_id']}"
    try:
        found = _followed(api, run, options.clock.monotonic)
    except KeyboardInterrupt:
        api.request("DELETE", run)
        print("sluice policy: cancelled", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(found))
    else:
        _print(found)
    if found["state"] != "done":
        print(f"sluice policy: the run is {found['state']}: {found['reason']}", file=sys.stderr)
        return 1
    return 0


def _followed(api: ControlApiClient, run: str, monotonic: Any) -> Impact:
    """Poll the run until it has ended, and return its result. Shows a progress bar meanwhile, if
    standard error is a terminal."""
    bar = Bar(sys.stderr if sys.stderr.isatty() else None, monotonic())
    try:
        while True:
            found: Impact = api.request("GET", run).body
            if found["state"] != _RUNNING:
                return found
            bar.show(found, monotonic())
            time.sleep(POLL_SECONDS)
    finally:
        bar.remove()


class Bar:
    """A progress bar for an impact run. Prints nothing if `out` is None."""

    def __init__(self, out: TextIO | None, now: float) -> None:
        self._out, self._started, self._entries = out, now, 0

    def show(self, found: Impact, now: float) -> None:
        if self._out is None:
            return
        done = int(found["progress"] * BAR)
        rate = found["entries"] / max(now - self._started, 0.001)
        # The escape sequence clears what a longer line left.
        self._out.write(
            f"\r[{'#' * done}{'.' * (BAR - done)}] {found['progress']:.0%}, "
            f"{found['entries']:,} entries, {rate:,.0f} entries/s\x1b[K"
        )
        self._out.flush()

    def remove(self) -> None:
        if self._out is not None:
            self._out.write("\r\x1b[K")
            self._out.flush()


def _print(found: Impact) -> None:
    for group in found["groups"]:
        text.show("", text.group(group))
    if found["left_out"]:
        print(f"{found['left_out']:,} more decisions change, in groups past the limit")
    renamed = found["renamed"]
    for group in renamed["groups"]:
        text.show("", text.group(group))
    for each in found["unreplayable"]:
        print(f"? {each['count']:,} can't be decided again: {each['why']}")
    print(
        f"{found['read']:,} decisions: {found['unchanged']:,} unchanged "
        f"({renamed['count']:,} by another policy), {found['newly_denied']:,} newly denied, "
        f"{found['newly_allowed']:,} newly allowed",
        file=sys.stderr,
    )
    if found["checkpoint_size"] is not None:
        print(
            f"entries {found['first_seq']:,} to {found['until_seq'] - 1:,}, proven by the signed "
            f"checkpoint of {found['checkpoint_size']:,} entries",
            file=sys.stderr,
        )
