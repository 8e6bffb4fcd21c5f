"""Determines the address by which browsers know the console, and the host under which it answers.

Browsers send a host's cookies to all its ports. At 127.0.0.1, any local server that a person visits
would get the console's session, an agent's too. So the console has one host of its own: that of
SLUICE_CONSOLE_URL, or else a name that no other program on this machine knows,
`<random>.localhost`, which browsers resolve to loopback (RFC 6761, 6.3).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from policies.ground.listen_address import ListenAddress
from policies.ground.process import secret_file

FILE = "console-host"
_NAME = re.compile(rb"([0-9a-f]{32}\.localhost)\n").fullmatch


@dataclass(frozen=True, slots=True)
class ConsoleAddress:
    """`public` is SLUICE_CONSOLE_URL, None without it; `host` the one host under which the console
    answers, None if it has none yet; `url` where browsers find it, empty if that is not known."""

    public: str | None
    host: str | None
    url: str

    @classmethod
    def given(cls, public: str) -> ConsoleAddress:
        """The address of SLUICE_CONSOLE_URL."""
        return cls(public, urlsplit(public).hostname, public)

    @classmethod
    def own(
        cls, data_dir: Path, listen: ListenAddress, entropy: Callable[[int], bytes]
    ) -> ConsoleAddress:
        """A name of its own by plain HTTP, made at the first start and kept in `data_dir`. Raises
        `UnusableFile`."""
        host = _kept_name(data_dir / FILE, entropy)
        # Port 0 lets the system choose, which is not known yet.
        return cls(None, host, f"http://{host}:{listen.port}" if listen.port else "")

    @classmethod
    def missing(cls) -> ConsoleAddress:
        """No address: by TLS the certificate says which names are right, and only the operator
        knows which of them nothing else listens on."""
        return cls(None, None, "")


def _kept_name(path: Path, entropy: Callable[[int], bytes]) -> str:
    kept = _NAME(secret_file.read(path) or b"")
    if kept is not None:
        return kept[1].decode()
    made = f"{entropy(16).hex()}.localhost"
    # A damaged file is replaced: sessions of the former name end, and nothing else depends on it.
    secret_file.write(path, f"{made}\n".encode())
    return made


# An origin (RFC 6454, section 6.2): browsers send it in lower case, without a path.
_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?\Z")


def parse_origin(text: str) -> str:
    """The origin, as browsers send it. Raises `ValueError` if there is more to it."""
    origin = text.removesuffix("/").lower()
    if not _ORIGIN.match(origin):
        raise ValueError(f"`{text}` is not an address like https://sluice.example")
    return origin
