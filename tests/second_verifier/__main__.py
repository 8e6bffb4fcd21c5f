"""Verifies an export file: `python -m tests.second_verifier [--documents] FILE [KEY ...]`. KEY is a
verifier key; one whose algorithm is that of a cosignature is a witness's. Exits with 0, 1
(findings) or 2; with `--documents`, also with 2 if documents that decisions cite are gone for a
reason that the log tells."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from tests.second_verifier.findings import NotAnExport
from tests.second_verifier.notes import COSIGNATURE, read_key
from tests.second_verifier.verifier import Pins, verify


def main(arguments: list[str]) -> int:
    """Prints the answer as JSON. Returns the exit code."""
    documents = arguments[:1] == ["--documents"]
    arguments = arguments[documents:]
    keys = [read_key(each) for each in arguments[1:]]
    witnesses = tuple(key for key in keys if key.algorithm == COSIGNATURE)
    pins = Pins(tuple(key.public for key in keys if key not in witnesses), witnesses)
    try:
        with open(arguments[0], "rb") as file:
            answer = verify(file, pins)
    except (NotAnExport, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps({"valid": answer.valid, **asdict(answer)}, indent=1))
    return 1 if answer.findings else 2 if documents and answer.incomplete else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
