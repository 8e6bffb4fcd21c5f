"""`python -m tests.chaos [FAULT…]` prints the fault matrix. Exit code 1 if a promise was broken."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import uvloop

from tests.chaos.faults import FAULTS
from tests.chaos.matrix import Matrix
from tests.support import properties

SECONDS = 6.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each lasts")
    busy = "how many times longer than promised a recovery may take: for a machine with other work"
    parser.add_argument("--patience", type=float, default=1.0, help=busy)
    parser.add_argument("--keep", type=Path, help="a folder for logs and data, kept")
    asked = parser.parse_args()
    unknown = [name for name in asked.faults if name not in FAULTS]
    if unknown:
        parser.error(f"no such fault: {', '.join(unknown)}; there are {', '.join(FAULTS)}")

    def tell(line: str) -> None:
        print(line, flush=True)

    properties.draw()
    tell(f"drawn: {properties.drawn()}")
    with tempfile.TemporaryDirectory(prefix="sluice-chaos-") as made:
        folder = Path(asked.keep or made)
        folder.mkdir(parents=True, exist_ok=True)
        # PostgreSQL runs as another user and has to get through.
        folder.chmod(0o711)
        matrix = Matrix(asked.seconds, asked.patience)
        rows = uvloop.run(matrix.run(folder, asked.faults or list(FAULTS), tell))
    broken = sum(len(row.broken) for row in rows)
    print(f"{len(rows)} faults, {broken} broken promises")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
