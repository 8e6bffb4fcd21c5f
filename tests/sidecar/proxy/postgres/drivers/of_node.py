"""Sessions of Node's drivers, `pg` and `postgres.js`: each is a script beside this file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests import servers
from tests.sidecar.proxy.postgres.drivers.transcript import Transcript
from tests.support.postgres_wire import Address


def pg(address: Address) -> Transcript:
    """Run `pg`. Skips the test without it."""
    return _run("pg", "of_pg.mjs", address)


def postgres_js(address: Address) -> Transcript:
    """Run `postgres.js`. Skips the test without it."""
    return _run("postgres.js", "of_postgres_js.mjs", address)


def pg_copy(address: Address) -> Transcript:
    """Run `COPY` by `pg`, which a sidecar refuses."""
    return _run("pg", "of_pg.mjs", address, only="copy")


def postgres_js_copy(address: Address) -> Transcript:
    """Run `COPY` by `postgres.js`, which a sidecar refuses."""
    return _run("postgres.js", "of_postgres_js.mjs", address, only="copy")


def _run(package: str, script: str, address: Address, only: str = "") -> Transcript:
    node, path = servers.need("node"), servers.need(package)
    place = json.dumps(address._asdict() | {"ssl": False, "only": only})
    ran = subprocess.run(
        [str(node), str(Path(__file__).with_name(script)), str(path), place],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return [(what, value) for what, value in json.loads(ran.stdout.splitlines()[-1])]
