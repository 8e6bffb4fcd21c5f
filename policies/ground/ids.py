"""Identifiers made from a time and random bytes that the caller supplies. Reads no clock and draws
no randomness.

Random bytes, drawn from their source a block at a time.

Two system calls per decision would cost more than the decision itself: each releases the
interpreter's lock and waits to get it back. The bytes are the source's own, each handed out once.
Both services pass `os.urandom`; this module has no randomness of its own.
"""

from collections.abc import Callable

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def base62(number: int, width: int) -> str:
    """Return `number` in base 62, zero-padded to `width` characters."""
    digits = ""
    while number:
        number, digit = divmod(number, 62)
        digits = ALPHABET[digit] + digits
    return digits.rjust(width, "0")


def uuid7(now_micros: int, entropy: bytes) -> str:
    """Return a UUIDv7 (RFC 9562, section 5.7) of a time in microseconds and at least 10 random
    bytes."""
    # 48 bits of milliseconds, 4 of version, 12 random, 2 of variant, 62 random.
    digits = ((now_micros // 1000).to_bytes(6, "big") + entropy[:10]).hex()
    variant = "89ab"[entropy[2] >> 4 & 3]  # a nibble that is used nowhere else
    return f"{digits[:8]}-{digits[8:12]}-7{digits[12:15]}-{variant}{digits[17:20]}-{digits[20:]}"


def prefixed(prefix: str, entropy: bytes) -> str:
    """Return `prefix` and 22 base-62 digits of 16 random bytes: `pol_…`, `agt_…`, `key_…`,
    `ten_…`."""
    return prefix + base62(int.from_bytes(entropy[:16], "big"), 22)


BLOCK = 8192


class RandomBuffer:
    """Draws blocks from `draw(n)` and hands out parts of them.

    Not thread-safe, and not safe across a fork: both processes would hand out the same bytes.
    """

    def __init__(self, draw: Callable[[int], bytes]) -> None:
        self._draw = draw
        self._block = b""
        self._at = 0

    def __call__(self, count: int) -> bytes:
        """Return `count` bytes that no other call gets."""
        start, end = self._at, self._at + count
        if end > len(self._block):
            # What is left of the old block is dropped: joining would copy, and bytes are cheap.
            self._block = self._draw(max(BLOCK, count))
            start, end = 0, count
        self._at = end
        return self._block[start:end]
