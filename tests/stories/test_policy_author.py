"""A policy author's hour, as `policies/README.md` tells it: from an empty folder to policies in
force, every command as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT
from tests.support.documents import SHELL
from tests.support.ports import free_port

README = (ROOT / "policies" / "README.md").read_text()
WALK = README[README.index("## Writing policies\n") : README.index("## Policy files\n")]
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "--- end of block {}"


def _script() -> tuple[str, list[str]]:
    """All steps as one script, as in one terminal, and the titles of its blocks."""
    lines, titles = ["set -m; trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"], []
    for language, text in FENCED.findall(WALK):
        first, rest = text.split("\n", 1)
        if language == "yaml":
            lines.append(f"cat > {first.removeprefix('# save as ')} <<'END'\n{text}END")
        elif language in SHELL:
            titles.append(first.removeprefix("# "))
            lines += [_expecting(line) for line in rest.splitlines()]
            lines.append(f"echo '{MARK.format(titles[-1])}'")
    return "\n".join(lines), titles


def _expecting(line: str) -> str:
    """A line whose command must fail with the code that its comment promises."""
    command, comment, code = line.partition("# exits with ")
    if not comment:
        return line
    return f"code=0; {command} || code=$?; test $code = {code}"


@pytest.mark.deep(
    stands_in="tests/deploy/commands/policy/test_candidate.py::test_a_promotion_that_breaks_a_guardrail_is_refused"
)
def test_the_walk_ends_with_the_new_policies_in_force(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "sluice"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m deploy.command "$@"\n')
    command.chmod(0o755)
    port = free_port()
    script, titles = _script()
    environ = {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "SLUICE_CONTROL_LISTEN": f"127.0.0.1:{port}",
        **{f"GIT_{who}_NAME": "Ann" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "ann@example.org" for who in ("AUTHOR", "COMMITTER")},
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace("127.0.0.1:8750", f"127.0.0.1:{port}")],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    said = dict(
        zip(titles, re.split("|".join(map(MARK.format, titles)), done.stdout), strict=False)
    )
    for language, text in FENCED.findall(WALK):
        if language == "text":
            assert text in done.stdout, done.stdout
    assert "coverage 100.0 %" in said["begin"] + done.stderr
    assert '"decision":"DENY"' in said["service"]
    assert "+ `claims_handler` may newly read `cases`: 1 " in said["service"]
    assert '"decision":"DENY"' in said["candidate"]  # it decides nothing yet
    assert "+ `claims_handler` may newly read `cases`: 1 " in said["candidate"]
    assert '"decision":"ALLOW"' in said["promote"]
    assert "may newly" not in said["promote"]
    assert "may no longer" not in said["promote"]
