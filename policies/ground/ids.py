"""Identifiers made from a time and random bytes that the caller supplies. Reads no clock and draws
no randomness.

Also a buffer of random bytes, which draws them a block at a time. Two system calls per decision
would cost more than the decision itself: each releases the interpreter's lock and waits to get it
back. The bytes are the source's own, each handed out once. Both services pass `os.urandom`; this
module has no randomness of its own.
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
    """Return a UUIDv7 (RFC 9562, section 5.7) made from a time, in microseconds since 1970 UTC, and
    at least 10 random bytes."""
    # 48 bits of milliseconds, 4 of version, 12 random, 2 of variant, 62 random.
    digits = ((now_micros // 1000).to_bytes(6, "big") + entropy[:10]).hex()
    variant = "89ab"[entropy[2] >> 4 & 3]  # a nibble that is used nowhere else
    return f"{digits[:8]}-{digits[8:12]}-7{digits[12:15]}-{variant}{digits[17:20]}-{digits[20:]}"


def prefixed(prefix: str, entropy: bytes) -> str:
    """Return an id: `prefix` (`pol_`, `agt_`, `key_`, `ten_`), then 16 random bytes as 22 base-62
    digits."""
    return prefix + base62(int.from_bytes(entropy[:16], "big"), 22)


BLOCK = 8192


class RandomBuffer:
    """Hands out random bytes from blocks that it gets by calling `draw(n)`.

    Not thread-safe, and not safe across a fork: both processes would hand out the same bytes.
    """

    def __init__(self, draw: Callable[[int], bytes]) -> None:
        self._draw = draw
        self._block = b""
        self._at = 0

    def __call__(self, count: int) -> bytes:
        """Return `count` random bytes that no other call gets."""
        start, end = self._at, self._at + count
        if end > len(self._block):
            # What is left of the old block is dropped: joining would copy, and bytes are cheap.
            self._block = self._draw(max(BLOCK, count))
            start, end = 0, count
        self._at = end
        return self._block[start:end]
