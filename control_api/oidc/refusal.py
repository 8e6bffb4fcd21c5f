"""Why a person is not signed in. The messages are for that person, and for the log: they hold no
code, token or secret."""

from enum import StrEnum

from policies.ground.errors import Forbidden, Unavailable

_SHOWN = 200


class Refusal(StrEnum):
    """What a sign-in was refused for."""

    state = "state"
    issuer = "issuer"
    provider = "provider"
    code = "code"
    id_token = "id_token"  # noqa: S105  # not one, but the name of what was refused
    groups = "groups"


class SignInRefused(Forbidden):
    """the sign-in is refused"""

    def __init__(self, reason: Refusal, why: str, *, subject: str | None = None) -> None:
        self.reason = reason
        self.subject = subject
        super().__init__(f"not signed in: {why}")


class ProviderUnavailable(Unavailable):
    """the identity provider can't be used"""

    def __init__(self, why: str) -> None:
        super().__init__(f"the identity provider can't be used: {why}")


def shown(text: object) -> str:
    """A text of the provider's for a message: short, and without control characters."""
    printable = "".join(c if c.isprintable() else " " for c in str(text)[:_SHOWN])
    return f"{printable}…" if len(str(text)) > _SHOWN else printable
