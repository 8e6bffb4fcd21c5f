"""The tokens that stand for earlier calls, tasks and results of an MCP server (R5). Knows no
messages."""

from typing import NamedTuple

import orjson

from sidecar.protocols.route_table import Sources
from sidecar.protocols.shared.continuations import Continuations


class Tokens(NamedTuple):
    """The tokens that the server issued through this sidecar, each with the sources that it stands
    for (R5)."""

    calls: Continuations
    """Calls whose response may arrive on another stream, by session and id."""
    tasks: Continuations
    states: Continuations
    """`requestState` of results that ask for more input."""


class AllowedCall(NamedTuple):
    """The call that a response answers, and the sources that it was allowed for."""

    identity: str | int
    sources: Sources


def call_token(session: str, identity: str | int) -> str:
    """A token for a call. Ids are unique within a session, and `1` differs from `"1"`."""
    # JSON escapes quotes, and a number holds no space, so the two parts can't run together.
    return f"{session} {orjson.dumps(identity).decode()}"
