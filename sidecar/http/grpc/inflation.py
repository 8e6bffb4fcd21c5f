"""Inflates compressed messages, to a limit. Pure."""

import zlib
from collections.abc import Callable
from typing import Any, Final, Protocol

from policies.ground.errors import Malformed

_ZSTD_WINDOW_LOG = 23
"""8 MiB, the window that every reader of zstd should allow (RFC 8878, section 3.1.1.1.2)."""
_ZSTD_SLICE = 64
"""A block of zstd has at least four bytes, and inflates to at most 128 KiB: a slice to 2 MiB."""


class _Inflating(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def inflate(message: bytes, coding: bytes, limit: int) -> bytes:
    """Return a message that was compressed by `coding` (`gzip`, `deflate`, and `zstd` where Python
    or the package `zstandard` can read it), of at most `limit` bytes. Raises `Malformed`."""
    made = _CODINGS[coding]() if coding in _CODINGS else None
    if made is None:
        raise Malformed("the message is compressed in a way that can't be inspected")
    inflating, error_type = made
    try:
        whole = inflating.decompress(message, limit + 1)
    except error_type:
        raise Malformed("the compressed message can't be inflated") from None
    if len(whole) > limit:
        raise Malformed(f"the message is larger than {limit} bytes, so it can't be inspected")
    if not inflating.eof:
        raise Malformed("the compressed message ends early")
    if inflating.unused_data:
        raise Malformed("bytes follow the compressed message")
    return whole


_Made = tuple[_Inflating, type[Exception]]


def _gzip() -> _Made:
    return zlib.decompressobj(16 + zlib.MAX_WBITS), zlib.error


def _deflate() -> _Made:
    return zlib.decompressobj(), zlib.error


def _zstd() -> _Made | None:
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        pass
    else:
        options = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
        return zstd.ZstdDecompressor(options=options), zstd.ZstdError
    try:
        import zstandard  # an extra
    except ImportError:
        return None
    return _Zstandard(zstandard.ZstdDecompressor(max_window_size=1 << _ZSTD_WINDOW_LOG)), (
        zstandard.ZstdError
    )


class _Zstandard:
    """The decompressor of `zstandard`, whose output can't be limited: it gets slices."""

    def __init__(self, decompressor: Any) -> None:
        self._slices = decompressor.decompressobj()
        self.eof = False
        self.unused_data = b""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        whole, at = bytearray(), 0
        while at < len(data) and not self.eof and len(whole) < max_length:
            whole += self._slices.decompress(data[at : at + _ZSTD_SLICE])
            at += _ZSTD_SLICE
            self.eof = self._slices.eof
        self.unused_data = self._slices.unused_data + data[at:]
        return bytes(whole)


_CODINGS: Final[dict[bytes, Callable[[], _Made | None]]] = {
    b"gzip": _gzip,
    b"deflate": _deflate,
    b"zstd": _zstd,
}
