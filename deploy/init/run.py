"""The commands `sluice init --target systemd|compose --dir DIR` and `sluice provision`.

`sluice provision` creates the sample agent, its key and its sidecar's key, once. A service of
`deploy/compose/compose.yaml` runs it. The steps are in `deploy.local.provision`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from deploy.init import compose, systemd
from deploy.init.files import CannotWrite, write
from deploy.local.provision import FirstStart
from deploy.local.provision import provision as create
from deploy.module_command import module_command
from policies.ground.process.api_client import ServiceUnusable, UnusableArguments, connect

TENANT = "default"


def provision(arguments: list[str], environ: Mapping[str, str]) -> int:
    """Run `sluice provision`: create the sample agent and the keys that are missing. Returns 0, 1
    for a failure, 2 for unusable arguments."""
    parser = argparse.ArgumentParser(
        prog="sluice provision",
        description="Registers and approves the sample agent `agt_support`, and writes `agent.key` "
        "and `sidecar.key`. What exists already stays.",
    )
    add = parser.add_argument
    add("--dir", required=True, type=Path, metavar="DIR", help="the folder to write the keys to")
    add("--url", help="address of the control API (SLUICE_URL)")
    add("--key-file", metavar="FILE", help="a file with an admin key (SLUICE_KEY_FILE)")
    add("--ca", metavar="FILE", help="certificate authority to trust, for https (SLUICE_CA)")
    options = parser.parse_args(arguments)
    try:
        control = connect(environ, options.url, options.key_file, options.ca)
        if control.key is None:
            raise UnusableArguments("an admin key is needed: --key-file or SLUICE_KEY_FILE")
        create(control, FirstStart(TENANT, control.key, None), options.dir)
    except UnusableArguments as problem:
        print(f"sluice: {problem}", file=sys.stderr)
        return 2
    except (ServiceUnusable, OSError) as problem:
        print(f"sluice: {problem}", file=sys.stderr)
        return 1
    print(f"{options.dir}: agent.key and sidecar.key are there")
    return 0


TARGETS = ("systemd", "compose")


def init(arguments: list[str], program: Path | None = None) -> int:
    """Run `sluice init`: write the files that are missing. `program` is the path of the `sluice`
    that the systemd units run, by default the one of this environment. Returns 0, 1 for a failure,
    2 for unusable arguments."""
    parser = argparse.ArgumentParser(
        prog="sluice init",
        description="Writes the configuration and keys of an installation. An existing file is "
        "never replaced, so running it again adds what is missing.",
    )
    parser.add_argument("--target", required=True, choices=TARGETS, help="what will run Sluice")
    parser.add_argument(
        "--dir",
        required=True,
        type=Path,
        metavar="DIR",
        help="the folder to write to; for systemd `/`, or a folder that stands for it",
    )
    options = parser.parse_args(arguments)
    folder: Path = options.dir.absolute()
    program = program or _own_program()
    if options.target == "systemd" and (problem := systemd.complaint(program)):
        if folder == Path("/"):
            advice = "install Sluice elsewhere, such as in /opt/sluice, and run its `sluice init`"
            print(f"sluice: {problem}; {advice}", file=sys.stderr)
            return 2
        # DIR stands for the `/` of a host on which this environment need not be.
        program = Path(systemd.PROGRAM)
        said = f"so they name `{program}`: install Sluice there on the host that gets the files"
        print(f"sluice: warning: {problem}, {said}", file=sys.stderr)
    try:
        if options.target == "systemd":
            files, keys = systemd.files(program), systemd.KEYS
        else:
            files, keys = list(compose.files(compose.prepare(folder))), compose.KEYS
        for path, written in write(folder, files):
            print(f"{'wrote' if written else 'kept '} {path}")
        sys.stdout.flush()
        if code := _make_keys(folder / keys):
            return code
        if options.target == "compose":
            compose.hand_over(folder)
    except (CannotWrite, OSError) as failure:
        print(f"sluice: {failure}", file=sys.stderr)
        return 1
    systemds = options.target == "systemd"
    steps = systemd.next_steps(folder, program) if systemds else compose.next_steps(folder)
    print(f"\n{steps}", end="")
    return 0


def _own_program() -> Path:
    """Return the path of this environment's `sluice`. If the command was called through a link such
    as `/opt/sluice`, the link is returned: an upgrade replaces the link, and the units should
    follow it."""
    own, called = Path(sysconfig.get_path("scripts"), "sluice"), Path(sys.argv[0]).absolute()
    return called if own.exists() and called.exists() and called.samefile(own) else own


def _make_keys(folder: Path) -> int:
    """Create the keys by running the control API's `make-keys`, which knows their formats. Returns
    its exit code."""
    command = module_command("control_api", "make-keys", "--dir", str(folder))
    # Settings of another installation, in this environment, don't matter to its keys.
    clean = {name: text for name, text in os.environ.items() if not name.startswith("SLUICE_")}
    return subprocess.run(command, env=clean, check=False).returncode
