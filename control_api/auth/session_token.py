"""The secret of a session of the console, and of a one-time sign-in link: `<realm>.<secret>`.

The realm is a tenant's id, or the superadmin's realm: the row is then read under that tenant's
row-level security. Knows no cookie and no form.
"""

import hashlib
import hmac
import re
from typing import NamedTuple

from policies.ground.ids import base62

_FORM = re.compile(r"([A-Za-z0-9_-]{1,64})\.([0-9A-Za-z]{43})\Z")
_FORM_TOKEN = b"sluice: token in the console's forms"


class SessionToken(NamedTuple):
    """A well-formed token; whether there is such a session is another question."""

    realm: str
    secret: str

    @classmethod
    def new(cls, realm: str, entropy: bytes) -> "SessionToken":
        """A token of 32 random bytes."""
        return cls(realm, base62(int.from_bytes(entropy[:32], "big"), 43))

    @classmethod
    def read(cls, text: str) -> "SessionToken | None":
        """The token in `text`; None if it has not the form of one."""
        found = _FORM.match(text)
        return None if found is None else cls(found[1], found[2])

    def write(self) -> str:
        return f"{self.realm}.{self.secret}"

    @property
    def digest(self) -> bytes:
        """SHA-256 of the secret, the only form that is ever stored."""
        return hashlib.sha256(self.secret.encode("ascii")).digest()

    @property
    def form_token(self) -> str:
        """What each form of this session carries. It follows from the secret, so it needs no
        storage, and doesn't reveal it."""
        return hmac.new(self.secret.encode("ascii"), _FORM_TOKEN, "sha256").hexdigest()

    def made_form(self, token: str) -> bool:
        """Whether a form with this token was made for this session; in constant time."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.form_token.encode())
