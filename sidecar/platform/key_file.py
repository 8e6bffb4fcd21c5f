"""An API key in a file of its own: one line, and nothing else. Knows no setting."""

from pathlib import Path

from policies.ground.keys import well_formed

_LONGEST = 1024


def read_key(path: Path) -> str:
    """The key; `ValueError` in words that never show what the file holds."""
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST + 1).decode("ascii").strip()
    except OSError as error:
        raise ValueError(f"`{path}` can't be read: {error.strerror}") from error
    except UnicodeDecodeError:
        text = ""
    if not well_formed(text):
        raise ValueError(f"`{path}` does not hold an API key, `slc_…`, or holds a mistyped one")
    return text
