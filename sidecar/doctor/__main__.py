"""`python -m sidecar.doctor --config FILE`: runs the checks and prints the findings, each with the
name of its check's function.

Exit code 0 without findings, 1 with findings, 2 for unusable settings or arguments.
"""

import argparse
import os
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from policies.ground.doctor_finding import DoctorFinding, ordered
from policies.ground.log_line import for_a_reader
from policies.ground.settings import SettingsError
from sidecar.config.file import read
from sidecar.doctor.direct_access import direct, grpc_twins, listeners
from sidecar.doctor.examination import DoctorContext, as_json, as_text, observe
from sidecar.doctor.files import disk_space, readable, users, writable
from sidecar.doctor.host import Host
from sidecar.doctor.names import broad_hosts, private_names, report_mode, write_actions
from sidecar.doctor.policy_set import escaped_denials, own_key
from sidecar.doctor.redirects import other_users, redirect, udp

Check = Callable[[DoctorContext], Iterable[DoctorFinding]]

CHECKS: tuple[Check, ...] = (
    writable, readable, users, listeners, direct, grpc_twins, redirect, udp, other_users,
    report_mode, private_names, broad_hosts, write_actions, own_key, escaped_denials, disk_space,
)  # fmt: skip

MAX_UID = 2**32 - 2
"""The largest user id. The next number, 2**32 - 1, means "no change" to `setuid`."""


def examine(context: DoctorContext) -> list[DoctorFinding]:
    """Run all checks. Returns the findings, the most severe first."""
    found = ((each, check.__name__) for check in CHECKS for each in check(context))
    return ordered(each._replace(check=name) for each, name in found)


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
    add = parser.add_argument
    add("--config", type=Path, required=True, help="the sidecar's settings file (YAML)")
    add("--agent-uid", type=_uid, metavar="UID", help="the user id that the agent runs as")
    add("--json", action="store_true", help="print the findings as JSON")
    return parser


def _uid(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_UID):
        raise argparse.ArgumentTypeError(f"`{text}` is not a user id; expected a number")
    return int(text)


if __name__ == "__main__":
    sys.exit(for_a_reader(main, gone=1))
