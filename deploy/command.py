"""`sluice`: one name for every part of it.

Dispatches to the commands of `deploy.overview`. A service takes over this process (`exec`), so its
arguments, `--help`, signals and exit codes are its own. Modules are imported only for the command
that needs them: a command line should answer at once. Exit code 2 for unusable arguments, 1 for a
failure, 0 for a drained stop.
"""

from __future__ import annotations

import argparse
import os
import sys

from deploy.overview import COMMANDS, overview, unknown


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns only for those that don't become a service."""
    given = sys.argv[1:] if arguments is None else arguments
    if not given:
        print(overview(), file=sys.stderr)
        return 2
    name, *rest = given
    if name in ("-h", "--help"):
        print(overview())
        return 0
    if name == "--version":
        print(f"sluice {_version()}")
        return 0
    if name not in COMMANDS:
        print(unknown(name), file=sys.stderr)
        return 2
    if COMMANDS[name].becomes:
        return _become(*COMMANDS[name].becomes, *rest)
    if name == "up":
        return _up(rest)
    from deploy.client.run import run

    return run(name, rest, os.environ)


def _become(module: str, *arguments: str) -> int:
    # `-P`: a folder named like one of our packages, where the command is typed, is not the package.
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sluice")
    except PackageNotFoundError:
        return "of this folder, which is not installed"


def _up(arguments: list[str]) -> int:
    from deploy.local.settings import DATA_DIR, ENVIRONMENT, MEANINGS, PORTS, option
    from deploy.local.up import up

    parser = argparse.ArgumentParser(
        prog="sluice up",
        description="Runs a control API, a sidecar and a sample data source, to try out. Ctrl-C "
        "drains and stops all.",
        epilog="An option overrides its environment variable. The services' own settings pass "
        "through: `sluice control --help` and `sluice sidecar --help` list them.",
    )
    for name, variable in ENVIRONMENT.items():
        port = PORTS.get(name)
        default = f"./{DATA_DIR}" if port is None else f"127.0.0.1:{port}"
        parser.add_argument(
            option(name),
            metavar="DIR" if port is None else "HOST:PORT",
            help=f"{MEANINGS[name]} ({variable}; default {default})",
        )
    parser.add_argument(
        "--free-ports",
        action="store_true",
        help="listen on free ports wherever no option names one; they are printed once all is up",
    )
    options = vars(parser.parse_args(arguments))
    free_ports = options.pop("free_ports")
    return up(options, free_ports=free_ports)


if __name__ == "__main__":
    sys.exit(main())
