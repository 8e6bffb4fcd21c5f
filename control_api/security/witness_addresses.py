"""The setting `SLUICE_WITNESSES`: which witnesses cosign checkpoints, and where they are asked.

Parses text; opens no socket.
"""

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from policies.ground.listen_address import ListenAddress
from policies.trail.proofs.signed_note import COSIGNATURE, VerifierKey

MAX_WITNESSES = 16
_URL = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+(?:/[A-Za-z0-9._~/\-]*)?\Z")


class WitnessAddress(NamedTuple):
    """A witness: the key that its cosignatures must verify with, and the URL before
    `/add-checkpoint`."""

    key: VerifierKey
    url: str

    @classmethod
    def parse(cls, text: str) -> "WitnessAddress":
        """Parses `<verifier key>@<url>`. Raises `ValueError`."""
        key, at, url = text.rpartition("@")
        if not at:
            raise ValueError(f"`{text[:200]}` is not `<verifier key>@<url>`")
        parsed = VerifierKey.parse(key)
        if parsed.type != COSIGNATURE:
            raise ValueError(f"`{parsed.name}` is the key of a log, not of a witness (type 4)")
        _check(url, parsed.name)
        return cls(parsed, url.rstrip("/"))


def parse_witnesses(text: str) -> tuple[WitnessAddress, ...]:
    """Parses `<verifier key>@<url>, …`. Raises `ValueError`, which names the bad entry."""
    found = tuple(WitnessAddress.parse(each.strip()) for each in text.split(",") if each.strip())
    if len({each.key.public for each in found}) != len(found):
        # One witness under two names must not count as two.
        raise ValueError("a key is listed twice: each witness counts once")
    if len(found) > MAX_WITNESSES:
        raise ValueError(f"lists {len(found)} witnesses; at most {MAX_WITNESSES} are asked")
    return found


def _check(url: str, name: str) -> None:
    # No user, query or fragment: none of them is a part of the protocol, and each could hide a
    # secret in a log line.
    if not _URL.match(url):
        raise ValueError(f"the URL of `{name}` must be https://host[:port][/path]")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError(f"the URL of `{name}` has a port that is not one") from None
    if parts.scheme == "http" and not ListenAddress(host, port or 80).loopback:
        raise ValueError(f"the URL of `{name}` must be https, unless its host is loopback")
