"""The address of the console of `sluice up`, under a host name of its own.

Browsers send a host's cookies to all its ports. At 127.0.0.1, any local server that a person visits
would get the console's session, an agent's too. So the console has a name that no other program on
this machine knows: `<random>.localhost`, which browsers resolve to loopback (RFC 6761, 6.3).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from deploy.local.provision import write_private
from deploy.local.settings import Address

FILE = "console-host"
_NAME = re.compile(r"[0-9a-f]{32}\.localhost").fullmatch
_GIVEN = ("SLUICE_CONSOLE_URL", "SLUICE_TLS_CERTIFICATE")
"""Settings with which the console has an address already, or can't have this one."""


def console_url(environ: Mapping[str, str], data_dir: Path, listen: Address) -> str | None:
    """The console's address; None if the settings in `environ` say where it is. The name is kept in
    `data_dir`, readable only by its owner, and stays the same."""
    if any(environ.get(name) for name in _GIVEN):
        return None
    return f"http://{_host(data_dir / FILE)}:{listen.port}"


def _host(path: Path) -> str:
    try:
        kept = path.read_text().strip()
    except FileNotFoundError:
        kept = ""
    if _NAME(kept):
        return kept
    made = f"{secrets.token_hex(16)}.localhost"
    write_private(path, made + "\n")
    return made
