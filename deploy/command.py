"""`sluice`: one name for every part of it.

Knows the sub-commands and their arguments, and nothing of what they do: a service takes over this
process (`exec`), so that signals and exit codes are its own. Exit code 2 for unusable arguments,
1 for a failure, 0 for a drained stop.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib.metadata import PackageNotFoundError, version


def main(arguments: list[str] | None = None) -> int:
    """Runs a sub-command; returns only for `up`, the others become their service."""
    chosen = _parser().parse_args(arguments)
    match chosen.command:
        case "up":
            from deploy.local.up import up

            return up({key: value for key, value in vars(chosen).items() if key != "command"})
        case "control":
            return _become("control_api")
        case "sidecar":
            return _become("sidecar", "--config", chosen.config)
        case "doctor":
            uid = [] if chosen.agent_uid is None else ["--agent-uid", chosen.agent_uid]
            more = ["--json"] if chosen.json else []
            return _become("sidecar.doctor", "--config", chosen.config, *uid, *more)
        case "migrate":
            return _become("control_api", "migrate")
        case "purge":
            one = [] if chosen.tenant is None else ["--tenant", chosen.tenant]
            return _become("control_api", "purge", *one)
        case "rotate-key":
            return _become("control_api", "rotate-key")
        case _:
            return _become("policies", "lint", chosen.path)


def _become(module: str, *arguments: str) -> int:
    # `-P`: a folder named like one of our packages, where the command is typed, is not the package.
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])


def _version() -> str:
    try:
        return version("sluice")
    except PackageNotFoundError:
        return "of this folder, which is not installed"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sluice", description=__doc__.partition("\n")[0])
    parser.add_argument("--version", action="version", version=f"sluice {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="control API, sidecar and a sample data source, to try out")
    for option, meaning in {
        "data-dir": "where everything lies (SLUICE_DATA_DIR, ./.sluice)",
        "control-listen": "the control API (SLUICE_CONTROL_LISTEN, 127.0.0.1:8700)",
        "sidecar-listen": "the sidecar (SLUICE_SIDECAR_LISTEN, 127.0.0.1:8710)",
        "source-listen": "the source as agents see it (SLUICE_UP_SOURCE_LISTEN, 127.0.0.1:18000)",
        "chroma-listen": "the source itself (SLUICE_UP_CHROMA_LISTEN, 127.0.0.1:8000)",
    }.items():
        place = "DIR" if option == "data-dir" else "HOST:PORT"
        up.add_argument(f"--{option}", metavar=place, help=meaning)
    commands.add_parser("control", help="the control API")
    sidecar = commands.add_parser("sidecar", help="one sidecar")
    sidecar.add_argument("--config", required=True, metavar="FILE", help="its YAML file")
    doctor = commands.add_parser("doctor", help="lists what could pass a sidecar by")
    doctor.add_argument("--config", required=True, metavar="FILE", help="the sidecar's YAML file")
    doctor.add_argument("--agent-uid", metavar="UID", help="the user that the agent is")
    doctor.add_argument("--json", action="store_true", help="for a program to read")
    commands.add_parser("migrate", help="the database's schema to its newest version")
    purge = commands.add_parser("purge", help="removes now what retention would within the hour")
    purge.add_argument("--tenant", metavar="ID", help="one tenant; every tenant otherwise")
    commands.add_parser("rotate-key", help="a new signing key, endorsed by the one that is there")
    policy = commands.add_parser("policy", help="policies as files")
    actions = policy.add_subparsers(dest="action", required=True, metavar="ACTION")
    lint = actions.add_parser("lint", help="says what is wrong in a file or a folder of them")
    lint.add_argument("path", metavar="PATH")
    return parser


if __name__ == "__main__":
    sys.exit(main())
