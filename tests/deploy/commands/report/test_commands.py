"""The README's commands, and the page as a browser shows it."""

import gzip
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.commands.report.made import Capture, made
from tests.deploy.commands.report.test_content import HOSTILE, hostile
from tests.deploy.commands.verify.world import KEY, export, put
from tests.servers import need
from tests.support.documents import commands, paste
from tests.support.documents import put as put_program

ROOT = Path(__file__).parents[4]


def test_the_readme_s_commands_write_and_verify_a_report(tmp_path: Path) -> None:
    put(tmp_path, gzip.compress(export()), "log.ndjson")
    put(tmp_path, f"{KEY}\n".encode(), "log.pub")
    script = commands(
        "deploy/commands/verify/README.md",
        "write a report on an agent, and check it as its reader will",
    )
    sluice = f'#!/bin/sh\nexec "{sys.executable}" -m deploy.command "$@"\n'
    put_program(tmp_path / "bin", "sluice", sluice)
    environ = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = paste(script, tmp_path, environ)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^OK: `evidence/report.json` holds$", done.stdout, re.MULTILINE)
    # A pipe can be opened only once, and must not lose what was looked at.
    piped = paste("sluice verify <(zcat log.ndjson) --key log.pub", tmp_path, environ)
    assert piped.returncode == 0, piped.stdout + piped.stderr
    piped = paste("sluice verify - --key log.pub < evidence/report.json", tmp_path, environ)
    assert piped.returncode == 0, piped.stdout + piped.stderr


@pytest.mark.deep(
    stands_in="tests/deploy/commands/report/test_content.py::test_hostile_values_are_text"
)
def test_a_browser_shows_the_page_and_runs_nothing_in_it(tmp_path: Path, capsys: Capture) -> None:
    chromium = need("chromium")
    made(tmp_path, capsys, "--agent", "agt_a", content=hostile(HOSTILE))
    # Markup that got in all the same could not run: the page's own policy is tried, too.
    path = tmp_path / "out/report.html"
    page = path.read_text("utf-8")
    for name, script in (
        ("plain", ""),
        (
            "broken",
            "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">",
        ),
    ):
        tried = tmp_path / f"{name}.html"
        tried.write_text(page.replace("</body>", f"{script}</body>"), "utf-8")
        done = subprocess.run(
            [str(chromium), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
             f"--user-data-dir={tmp_path / 'profile'}", tried.as_uri()],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        assert "<title>Audit report</title>" in done.stdout
        assert "What happened, in order" in done.stdout
        assert "&lt;script&gt;" in done.stdout
        assert done.stdout.count("<script>") == script.count("<script>")
    shot = tmp_path / "page.png"
    subprocess.run(
        [str(chromium), "--headless", "--no-sandbox", "--disable-gpu", f"--screenshot={shot}",
         f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert shot.read_bytes().startswith(b"\x89PNG")
