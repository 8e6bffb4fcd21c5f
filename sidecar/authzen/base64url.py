"""Base64 with the alphabet that is safe in URLs, without padding (RFC 7515, section 2)."""

from base64 import urlsafe_b64decode, urlsafe_b64encode


def encode(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Skips characters outside the alphabet. Raises `ValueError` if what is left can't be
    decoded."""
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
