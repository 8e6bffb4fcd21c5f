"""Compresses streamed responses, as `Accept-Encoding` allows (RFC 9110, section 12.5.3).

zstd where the package `zstandard` is installed (the extra `zstd`), gzip otherwise. Knows no
response.
"""

import zlib
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Protocol

GZIP_LEVEL = 1
"""The fastest: hashes and salts hardly compress, and the rest compresses well at any level."""
ZSTD_LEVEL = 1
_GZIP_WINDOW = 31  # `zlib`: the largest window, with a gzip header and trailer


class Compressor(Protocol):
    """A stream's compressor: some calls of `compress`, then one of `flush`."""

    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


def _gzip() -> Compressor:
    return zlib.compressobj(GZIP_LEVEL, wbits=_GZIP_WINDOW)


def _zstd() -> Compressor:
    from zstandard import ZstdCompressor  # an extra: most installations do without

    return ZstdCompressor(level=ZSTD_LEVEL).compressobj()


# In the order of preference among codings that the client likes equally.
CODINGS: dict[str, Callable[[], Compressor]] = {
    **({"zstd": _zstd} if find_spec("zstandard") else {}),
    "gzip": _gzip,
}


def choose(accepted: Sequence[str]) -> str | None:
    """The coding for a response, by the values of `Accept-Encoding`; None for none."""
    weights: dict[str, float] = {}
    for each in ",".join(accepted).split(","):
        name, _, parameter = each.partition(";")
        key, _, value = parameter.strip().partition("=")
        try:
            weights[name.strip().lower()] = float(value) if key.strip() == "q" else 1.0
        except ValueError:
            continue  # not a weight: as if the coding were not listed
    best, most = None, 0.0
    for coding in CODINGS:
        # `*` is not taken up: a client that does not name a coding may not be able to read it.
        weight = weights.get("x-gzip" if coding == "gzip" and "gzip" not in weights else coding, 0)
        if weight > most:
            best, most = coding, weight
    return best
