"""Records an installation of a version with a log, for the next version's test of an upgrade.

    python -m tests.compatibility.record_installation SOURCE VERSION

Like `record`: run it once for each minor version, after that. The files are never rewritten.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path

from tests.compatibility.exchanges import RECORDED
from tests.compatibility.installation import install
from tests.compatibility.names import names_in
from tests.support.stack import Stack


def main(source: Path, version: str) -> None:
    destination = RECORDED / version / "installation"
    destination.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        stack = Stack(Path(scratch))
        data = stack.directory / "data"
        # That version makes its own database, not today's.
        shutil.rmtree(data)
        try:
            install(stack, source).write(destination / "left.json")
        finally:
            stack.stop()
        with sqlite3.connect(data / "sluice.db") as database:
            (destination / "database.sql").write_text("\n".join(database.iterdump()) + "\n")
        database.close()
        shutil.copyfile(data / "log.key", destination / "log.key")
        shutil.copyfile(stack.directory / "sidecar.yaml", destination / "sidecar.yaml")
        example = source / "sidecar" / "config" / "sidecar.example.yaml"
        shutil.copyfile(example, destination / example.name)
    names = json.dumps(names_in(source), indent=1)
    (destination / "names.json").write_text(names + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
