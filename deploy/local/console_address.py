"""The address of the console of `sluice up`, under the host name that the control API has made for
itself: browsers send a host's cookies to all its ports, so no other program may share its host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deploy.local.settings import Address

FILE = "console-host"
"""The file in which the control API keeps the name, in its data directory."""


def console_url(environ: Mapping[str, str], data_dir: Path, listen: Address) -> str | None:
    """Return the console's address; None if the settings in `environ` say where it is, or it has
    none."""
    if environ.get("SLUICE_CONSOLE_URL"):
        return None
    try:
        host = (data_dir / FILE).read_text().strip()
    except FileNotFoundError:
        return None  # it is switched off
    return f"http://{host}:{listen.port}"
