"""Reads an API key from a file that holds one line and nothing else. Knows no setting."""

from pathlib import Path

from policies.ground.errors import worded
from policies.ground.keys import well_formed

_MAX_BYTES = 1024  # a wrong path may name a device or a file of gigabytes


def read_key(path: Path) -> str:
    """Return the API key in the file. Raises `ValueError` with a message that never shows the
    file's content."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1).decode("ascii").strip()
    except OSError as error:
        raise ValueError(f"`{path}` can't be read: {worded(error)}") from error
    except UnicodeDecodeError:
        text = "?"  # not a key either; the error itself would show bytes of the file
    if not well_formed(text):
        raise ValueError(f"`{path}` {_fault(text)}: expected one line, `slc_…`")
    return text


def _fault(text: str) -> str:
    if not text:
        return "is empty"
    if text.startswith("slc_") and len(text.split()) == 1:
        return "holds a mistyped or truncated key"
    return "does not hold an API key"
