"""The installed distribution: the command to install it, and the wheel from which this process was
installed.

It is published on no index, so every text that says how to install it names a wheel's file. A
report or page that asks its reader to install it shows the wheel's digest to compare with.
"""

import json
from functools import cache
from typing import Final

from policies import __version__

DISTRIBUTION: Final = "sluice-governance"
WHEEL: Final = f"sluice_governance-{__version__}-py3-none-any.whl"
"""The file name of the wheel without compiled modules, as a build in a checkout writes it to
`dist`."""
UNKNOWN: Final = "not known"


def install_command(extra: str = "") -> str:
    """Return the shell command that installs the wheel in the current folder, with the optional
    dependencies `extra` if given."""
    return f"pip install './{WHEEL}[{extra}]'" if extra else f"pip install ./{WHEEL}"


def how_to_install(extra: str) -> str:
    """Return what to do where the optional dependencies `extra` are missing, in the words that an
    error adds after `;`."""
    return (
        f"run `{install_command(extra)}` in the folder with the wheel, or "
        f"`pip install '.[{extra}]'` in a checkout"
    )


@cache
def wheel_digest() -> str:
    """Return the SHA-256 of the wheel that this process runs from, as 64 hex digits.

    The installer records it (PEP 610). Return `not known` if it recorded none: in a checkout, for
    an installation from an index, and for installers that leave it out.
    """
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import

    try:
        noted = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        return UNKNOWN
    return _sha256(noted) if noted else UNKNOWN


def _sha256(noted: str) -> str:
    """Return the wheel's digest in the text of a `direct_url.json` (PEP 610), or `not known`."""
    try:
        found = json.loads(noted)["archive_info"]["hashes"]["sha256"]
    except (ValueError, KeyError, TypeError):  # another form, such as that of an editable install
        return UNKNOWN
    return found if isinstance(found, str) and _is_sha256(found) else UNKNOWN


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and not set(text) - set("0123456789abcdef")
