"""One attempt to sign in: what the browser must bring back, so that the answer is its own.

Everything comes from one secret, which only the browser's cookie holds. The service stores nothing,
so any process can finish what another one began.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field

_SECRET_BYTES = 32
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}\Z")
MAX_SECONDS = 600
"""How long a person may take at the provider."""
_MAX_COOKIE = 2048


@dataclass(frozen=True, slots=True)
class Attempt:
    """`secret` has 43 characters. `repr` leaves it out: it is as good as the values below. `to` is
    the page to go on to, and `realm` where to sign in, if the person has chosen. Both come back
    from the browser, so check them again before they are used."""

    secret: str = field(repr=False)
    to: str = ""
    realm: str = ""

    @classmethod
    def new(cls, entropy: Callable[[int], bytes], to: str = "", realm: str = "") -> "Attempt":
        return cls(_encoded(entropy(_SECRET_BYTES)), to, realm)

    @classmethod
    def from_cookie(cls, value: str | None) -> "Attempt | None":
        """The attempt that this browser began; None if the cookie is missing or not ours."""
        if value is None or len(value) > _MAX_COOKIE:
            return None
        secret, *rest = value.split(".")
        try:
            to, realm = (_decoded(part) for part in rest)
        except ValueError:
            return None
        return cls(secret, to, realm) if _SECRET.match(secret) else None

    def to_cookie(self) -> str:
        """The value of the cookie: only characters that need no quotes in it."""
        to, realm = _encoded(self.to.encode()), _encoded(self.realm.encode())
        value = f"{self.secret}.{to}.{realm}"
        # Without the page to go on to rather than refused by the browser for its size.
        return value if len(value) <= _MAX_COOKIE else f"{self.secret}.."

    @property
    def state(self) -> str:
        """Ties the answer to the browser: another browser's cookie gives another one."""
        return self._derived(b"state")

    @property
    def nonce(self) -> str:
        """Ties the ID token to the attempt."""
        return self._derived(b"nonce")

    @property
    def verifier(self) -> str:
        """Ties the code to the attempt (RFC 7636): the provider has seen only its SHA-256."""
        return self._derived(b"verifier")

    def _derived(self, purpose: bytes) -> str:
        return _encoded(hmac.digest(self.secret.encode(), purpose, hashlib.sha256))


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(text: str) -> str:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
