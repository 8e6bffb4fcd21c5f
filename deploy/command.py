"""The `sluice` command: dispatches to the commands listed in `deploy.overview`.

A service replaces this process (`exec`), so its arguments, `--help`, signals and exit codes are its
own. Other commands import only the modules that they need, so that they start at once. The exit
code is 2 for unusable arguments, 1 for a failure, and 0 for success or a drained stop.
"""

from __future__ import annotations

import argparse
import os
import sys

from deploy.module_command import module_command
from deploy.overview import COMMANDS, complaint, overview, unknown
from policies.ground.distribution import DISTRIBUTION, wheel_digest


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Returns its exit code, unless a service replaces the process."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        print(overview(), file=sys.stderr)
        return 2
    name, *rest = words
    if name in ("-h", "--help"):
        print(overview())
        return 0
    if name == "--version":
        print(f"sluice {_version()}, the core is {_core_form()}")
        print(f"wheel's SHA-256: {wheel_digest()}")
        return 0
    if name not in COMMANDS:
        print(unknown(name), file=sys.stderr)
        return 2
    # An import that fails in the service would only say which module it did not find.
    if lacking := complaint(COMMANDS[name]):
        print(lacking, file=sys.stderr)
        return 1
    if name == "doctor" and "--cluster" in rest:
        from deploy.kubernetes.doctor.command import (
            main as examine_cluster,  # the sidecar's does without
        )

        return examine_cluster(rest)
    if COMMANDS[name].becomes:
        return _become(*COMMANDS[name].becomes, *rest)
    if name == "up":
        return _up(rest)
    if name == "init":
        from deploy.init.run import init

        return init(rest)
    if name == "provision":
        from deploy.init.provision import provision

        return provision(rest, os.environ)
    from deploy.commands.client.run import run  # imported late: `sluice control` does not need it

    return run(name, rest, os.environ)


def _become(module: str, *arguments: str) -> int:
    os.execv(sys.executable, module_command(module, *arguments))


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "(run from a folder, not installed)"


def _core_form() -> str:
    """`compiled` or `pure Python`: the services log the same words when they start."""
    from importlib.util import find_spec

    # Looked up and not imported: this command works without any library.
    found = find_spec("policies.ground.canonical")
    compiled = found is not None and not (found.origin or "").endswith(".py")
    return "compiled" if compiled else "pure Python"


def _up(arguments: list[str]) -> int:
    # Imported late: the other commands don't need these.
    from deploy.local.settings import DATA_DIR, ENVIRONMENT, MEANINGS, PORTS, option
    from deploy.local.up import up

    parser = argparse.ArgumentParser(
        prog="sluice up",
        description="Runs a control API, a sidecar and a sample data source on this machine, to "
        "try Sluice out. Ctrl-C drains and stops them.",
        epilog="An option overrides its environment variable. The services read their own "
        "settings too: `sluice control --help` and `sluice sidecar --help` list them.",
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
        help="choose a free port for every address without an option, and print them",
    )
    options = vars(parser.parse_args(arguments))
    free_ports = options.pop("free_ports")
    return up(options, free_ports=free_ports)


if __name__ == "__main__":
    sys.exit(main())
