"""A witness that is killed at one step: `python -m … STEP --config FILE`. A STEP is where in
`witness/witness.py` or `process/secret_file.py` a crash is narrated."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from deploy.commands.witness import __main__, witness


def _die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _dying_after(function: Any) -> Any:
    def call(*given: Any, **named: Any) -> Any:
        function(*given, **named)
        _die()

    return call


def arm(step: str) -> None:
    """`STEP`: the moment of the death."""
    note_only = witness.Memory.save
    match step:
        case "before-writing":
            witness.Memory.save = _die  # type: ignore[method-assign]
        case "before-renaming" | "after-renaming":

            def save(self: witness.Memory, note: Any) -> Any:
                # Only now: the key file is written by the same function.
                dead = _die if step == "before-renaming" else _dying_after(Path.rename)
                Path.rename = dead  # type: ignore[method-assign]
                return note_only(self, note)

            witness.Memory.save = save  # type: ignore[method-assign]
        case "before-answering":
            witness.Memory.remember = _die  # type: ignore[method-assign]
        case _:
            sys.exit(f"no step `{step}`")


if __name__ == "__main__":
    arm(sys.argv[1])
    sys.exit(__main__.main(sys.argv[2:]))
