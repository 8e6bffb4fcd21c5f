"""Runs JavaScript in Node: a script's last expression is what it tells."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.servers import need
from tests.support.stack import ROOT

PACKAGE = ROOT / "deploy" / "sdk" / "typescript"
_HEAD = f"""\
import * as sluice from "{PACKAGE / "src" / "index.js"}";
const {{ Decision, Denied, Guard, NotAllowed, Unavailable, acting, propagationHeaders }} = sluice;
const given = JSON.parse(process.env.GIVEN);
/** What came of a promise, as JSON. */
const outcome = (promise) =>
  promise.then(
    (value) => ({{ value }}),
    (error) => ({{
      name: error.name,
      message: error.message,
      shown: `${{error.stack}} ${{JSON.stringify(error)}} ${{error.cause}}`,
    }}),
  );
"""


def run(script: str, **given: object) -> Any:
    """What `script`, the body of an asynchronous function, returns. `given` is in `given`."""
    return run_in(ROOT, _HEAD, script, given)


def run_in(cwd: Path, head: str, script: str, given: Mapping[str, object]) -> Any:
    """Like `run`, in a folder, and behind other imports."""
    source = f"{head}\nconst told = await (async () => {{\n{script}\n}})();\n"
    source += 'process.stdout.write("\\n" + JSON.stringify(told ?? null));'
    done = subprocess.run(
        [need("node"), "--input-type=module"],
        input=source,
        env={**os.environ, "GIVEN": json.dumps(given)},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.rpartition("\n")[2])


def npm(*arguments: str, cwd: Path, cache: Path) -> str:
    """What npm prints. It comes with Node's wheel, and asks no registry."""
    node = need("node").resolve()
    client = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    options = ("--offline", "--no-audit", "--no-fund", "--cache", str(cache))
    done = subprocess.run(
        [node, client, *arguments, *options],
        cwd=cwd,
        env={**os.environ, "PATH": f"{node.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
