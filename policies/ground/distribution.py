"""Names the installed distribution: how to install it, and which wheel it was installed from.

It is published on no index, so every text that says how to install it names a wheel's file. A
report or page that asks its reader to install it shows the wheel's digest to compare with.
"""

import json
from functools import cache
from typing import Final

from policies import __version__

DISTRIBUTION: Final = "sluice-governance"
WHEEL: Final = f"sluice_governance-{__version__}-py3-none-any.whl"
"""The pure wheel's file name, as a build in a checkout writes it to `dist`."""
UNKNOWN: Final = "not known"


def install_command(extra: str = "") -> str:
    """Return the command that installs the wheel in the current folder, with an extra if one is
    given."""
    return f"pip install './{WHEEL}[{extra}]'" if extra else f"pip install ./{WHEEL}"


def how_to_install(extra: str) -> str:
    """Return the text that an error adds after `;` where an extra is missing."""
    return (
        f"run `{install_command(extra)}` in the folder with the wheel, or "
        f"`pip install '.[{extra}]'` in a checkout"
    )


@cache
def wheel_digest() -> str:
    """Return the SHA-256 of the wheel that this process runs from, as 64 hex digits.

    The installer notes it (PEP 610). `not known` where it noted none: in a checkout, for an
    installation from an index, and for installers that leave it out.
    """
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import

    try:
        noted = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        return UNKNOWN
    return _sha256(noted) if noted else UNKNOWN


def _sha256(noted: str) -> str:
    """Return the digest in the text of a `direct_url.json`."""
    try:
        found = json.loads(noted)["archive_info"]["hashes"]["sha256"]
    except (ValueError, KeyError, TypeError):  # another form, such as that of an editable install
        return UNKNOWN
    return found if isinstance(found, str) and _is_sha256(found) else UNKNOWN


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and not set(text) - set("0123456789abcdef")
