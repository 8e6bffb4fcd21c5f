"""A command whose reader goes away before all is written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMMAND = """\
import sys
from policies.ground.log_line import for_a_reader

def run():
    print("x" * {length})
    return 3

sys.exit(for_a_reader(run, gone=4))
"""


@pytest.mark.parametrize(
    ("length", "code"), [(1, 3), (1_000_000, 4)], ids=["at the end", "while it writes"]
)
def test_a_reader_that_closes_the_pipe_ends_a_command_without_a_message(
    length: int, code: int
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as output:
        done = subprocess.run(
            [sys.executable, "-c", COMMAND.format(length=length)],
            stdout=output, stderr=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": ""},
            cwd=ROOT, timeout=60, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, b"")


def test_a_command_whose_output_is_closed_has_its_own_code() -> None:
    command = [sys.executable, "-c", COMMAND.format(length=1)]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command],
        capture_output=True, cwd=ROOT, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (3, b"")
