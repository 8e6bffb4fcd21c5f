"""`python -m sidecar.doctor --config FILE`: reads the arguments and the environment once, runs the
checks and prints the findings.

Exit code 0 without findings, 1 with findings, 2 for unusable settings or arguments.
"""

import argparse
import os
import socket
import sys
from pathlib import Path

from policies.ground.output import for_a_reader
from policies.ground.settings import SettingsError
from sidecar.config.file import read
from sidecar.doctor.checks import examine
from sidecar.doctor.examination import as_json, as_text, observe
from sidecar.doctor.host import Host

MAX_UID = 2**32 - 2
"""The largest user id; 2**32 - 1 means "no change" to setuid."""


def main() -> int:
    arguments = _parser().parse_args()
    try:
        settings = read(arguments.config, os.environ, socket.gethostname())
    except SettingsError as error:
        for complaint in error.complaints:
            print(complaint, file=sys.stderr)
        return 2
    findings = examine(observe(settings, arguments.config, Host(), arguments.agent_uid))
    print((as_json if arguments.json else as_text)(findings))
    return 1 if findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sluice doctor",
        description="Finds ways around a sidecar: direct access to its sources, gaps in the "
        "packet filter, files that others can change. Run it beside the sidecar, as root.",
    )
    parser.add_argument(
        "--config", type=Path, required=True, help="the sidecar's settings file (YAML)"
    )
    parser.add_argument(
        "--agent-uid", type=_uid, metavar="UID", help="the user id that the agent runs as"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    return parser


def _uid(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_UID):
        raise argparse.ArgumentTypeError(f"`{text}` is not a user id; expected a number")
    return int(text)


if __name__ == "__main__":
    sys.exit(for_a_reader(main, gone=1))
