"""What one request may cost (contract, section 6, "Budgets of one request"). Every limit on the
work that a single request can cause stands here, and all protocols charge the same object.

A budget is made with the request, travels in `Asked.budget`, and is given up with it. Each unit of
work is charged before it is done; what goes over the limit raises `OverBudget`, which becomes
`400` and one DENY `unreadable_request`, whichever protocol and whichever unit it was.

Pure. Knows counts; knows no protocol.
"""

from collections.abc import Iterable

from policies.ground.errors import Malformed

MAX_SOURCES = 64
"""Distinct sources: each one is a decision and a record."""
MAX_PARTS = 1_000
"""Lines of a bulk body, or sub-requests of a batch."""
MAX_LOOKUPS = 64
"""Requests of the sidecar's own to the data source, in the agent's name."""
MAX_GRAPHQL_TOKENS = 2_000
"""Tokens of all GraphQL documents of a request together."""
MAX_GRAPHQL_CHARACTERS = 64 * 1024
"""Characters of these documents, long plain strings not counted: a token may be of any length."""

MAX_ARGUMENTS = 4_096
"""Members and lists that are looked through for names, in the arguments of searches. Numbers in a
list, such as a vector's, are not among them."""


class OverBudget(Malformed):
    """the request costs more than one request may"""


class Budget:
    """What is left for one request. Not shared between requests."""

    __slots__ = (
        "_arguments",
        "_graphql_characters",
        "_graphql_tokens",
        "_lookups",
        "_parts",
        "_sources",
    )

    def __init__(self) -> None:
        self._sources: set[str] = set()
        self._parts = MAX_PARTS
        self._lookups = MAX_LOOKUPS
        self._arguments = MAX_ARGUMENTS
        self._graphql_tokens = MAX_GRAPHQL_TOKENS
        self._graphql_characters = MAX_GRAPHQL_CHARACTERS

    def charge_sources(self, names: Iterable[str]) -> None:
        """Sources by their names; one that was charged before costs nothing."""
        sources = self._sources
        for name in names:
            sources.add(name)
            if len(sources) > MAX_SOURCES:
                raise OverBudget(f"the request concerns more than {MAX_SOURCES} sources")

    def charge_parts(self, count: int) -> None:
        """Lines or sub-requests."""
        self._parts -= count
        if self._parts < 0:
            raise OverBudget(f"the body has more than {MAX_PARTS} lines or sub-requests")

    def charge_lookup(self) -> None:
        """One request to the data source that the sidecar makes to find out what a name means."""
        self._lookups -= 1
        if self._lookups < 0:
            raise OverBudget(f"the request takes more than {MAX_LOOKUPS} look-ups")

    @property
    def graphql_tokens(self) -> int:
        """How many tokens are left, for a parser that stops by itself."""
        return self._graphql_tokens

    def charge_graphql_tokens(self, count: int) -> None:
        """Tokens of one document."""
        self._graphql_tokens -= count
        if self._graphql_tokens < 0:
            raise OverBudget(f"the queries have more than {MAX_GRAPHQL_TOKENS} tokens")

    def charge_graphql_characters(self, count: int) -> None:
        """Characters of one document."""
        self._graphql_characters -= count
        if self._graphql_characters < 0:
            raise OverBudget(f"the queries have more than {MAX_GRAPHQL_CHARACTERS} characters")

    def charge_arguments(self, count: int) -> None:
        """Members and lists in the arguments of a search."""
        self._arguments -= count
        if self._arguments < 0:
            raise OverBudget(f"the arguments hold more than {MAX_ARGUMENTS} values")
