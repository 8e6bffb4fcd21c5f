"""`python -m sidecar.doctor --config FILE`: reads the arguments and the environment once, looks,
and tells.

Exit code 0 where nothing was found, 1 where something was, 2 for unusable settings or arguments.
"""

import argparse
import os
import socket
import sys
from pathlib import Path

from policies.ground.settings import SettingsError
from sidecar.config.file import read
from sidecar.doctor.checks import examine
from sidecar.doctor.context import look
from sidecar.doctor.finding import as_json, as_text
from sidecar.doctor.host import Host

MOST = 2**32 - 2


def main() -> int:
    arguments = _parser().parse_args()
    try:
        settings = read(arguments.config, os.environ, socket.gethostname())
    except SettingsError as error:
        for complaint in error.complaints:
            print(complaint, file=sys.stderr)
        return 2
    findings = examine(look(settings, arguments.config, Host(), arguments.agent_uid))
    print((as_json if arguments.json else as_text)(findings))
    return 1 if findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sluice doctor", description="Lists what could pass a sidecar by."
    )
    parser.add_argument("--config", type=Path, required=True, help="the sidecar's file (YAML)")
    parser.add_argument("--agent-uid", type=_uid, metavar="UID", help="the user that the agent is")
    parser.add_argument("--json", action="store_true", help="for a program to read")
    return parser


def _uid(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= MOST):
        raise argparse.ArgumentTypeError(f"`{text}` is no user's number")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
