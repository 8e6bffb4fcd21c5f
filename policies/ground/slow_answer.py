"""Words for a person whose command waits for a control API that does not respond."""

from policies.ground.output import printable

AFTER = 3.0
"""Seconds without a response after which a command says that it waits."""


def waiting_for(address: str, seconds: float) -> str:
    """What a command says that gives up waiting for `address` in `seconds`."""
    return f"no response from `{printable(address)}` yet; waiting up to {seconds:.0f} s more"
