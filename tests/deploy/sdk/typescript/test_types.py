"""The types as the compiler of TypeScript reads them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.deploy.sdk.typescript.node import PACKAGE
from tests.servers import need

USAGE = Path(__file__).with_name("usage.ts")
OPTIONS = ("--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022")


def test_correct_uses_compile_and_wrong_ones_do_not(tmp_path: Path) -> None:
    compiler, node = need("typescript"), need("node")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "sluice-guard").symlink_to(PACKAGE)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "usage.ts").write_text(USAGE.read_text())
    done = subprocess.run(
        [node, compiler, *OPTIONS, "usage.ts"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
