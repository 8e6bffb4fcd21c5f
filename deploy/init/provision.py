"""The command `sluice provision`: the sample agent, its key and its sidecar's, created once.

A service of `deploy/compose/compose.yaml` runs it. Knows the options; the steps are in
`deploy.local.provision`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from deploy.local.provision import FirstStart
from deploy.local.provision import provision as create
from policies.ground.process.api_client import ServiceUnusable, UnusableArguments, connect

TENANT = "default"


def provision(arguments: list[str], environ: Mapping[str, str]) -> int:
    """Create what is missing. Returns 0, 1 for a failure, 2 for unusable arguments."""
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
