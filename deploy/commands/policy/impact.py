"""`sluice policy impact`: what recorded traffic would have got under other policies."""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from deploy.commands.policy import text
from deploy.commands.policy.service import add_service, connect
from deploy.commands.policy.sources import body, read
from deploy.commands.policy.text import AddCommand, add_output, typed_time
from policies.ground.canonical import rfc3339
from policies.ground.process.api_client import RemoteApi
from policies.ground.typed_time import ACCEPTED

ROUTE = "/v1/policies/impact"
POLL_SECONDS = 0.5
BAR = 24
_RUNNING = "running"

Impact = Mapping[str, Any]
"""The answer of `GET /v1/policies/impact/{impact_id}`."""


def add(add_command: AddCommand) -> None:
    """Add the command `impact`."""
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
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    policies = [body(each) for each in read(options.new, options.tenant)]
    api = connect(options)
    begin = rfc3339(typed_time(options, "--since", options.since))
    started = api.ask("POST", ROUTE, body={"policies": policies, "from": begin})
    run = f"{ROUTE}/{started['impact_id']}"
    try:
        found = _followed(api, run, options.clock.monotonic)
    except KeyboardInterrupt:
        api.ask("DELETE", run)
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


def _followed(api: RemoteApi, run: str, monotonic: Any) -> Impact:
    """The run once it has ended, with a bar on a terminal until then."""
    bar = Bar(sys.stderr if sys.stderr.isatty() else None, monotonic())
    try:
        while True:
            found: Impact = api.ask("GET", run)
            if found["state"] != _RUNNING:
                return found
            bar.show(found, monotonic())
            time.sleep(POLL_SECONDS)
    finally:
        bar.remove()


class Bar:
    """How far the run has come, on a terminal."""

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
