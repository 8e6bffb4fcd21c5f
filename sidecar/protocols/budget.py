"""Bounds the cost of one request (`CONTRACT.md`, Budgets of one request). All limits on the work of
a single request are here, and every protocol charges the same object.

A budget lives as long as its request, as `RoutedRequest.budget`. Work is charged before it is done.
A charge over the limit raises `OverBudget`, which becomes `400` and one DENY `unreadable_request`,
whatever the protocol and the unit. A charge of a request that has ended raises it too: work that
runs in another thread can't be ended in another way.

Pure. Knows counts, but no protocol.
"""

from collections.abc import Iterable

from policies.ground.errors import Malformed

MAX_SOURCES = 64
"""The most distinct sources. Each one takes a decision and a record."""
MAX_PARTS = 1_000
"""The most lines of a bulk body, or sub-requests of a batch."""
MAX_KEYS = 1_000
"""The most keys that one request names to delete them together: S3's own limit. They are judged in
slices, so they are not counted as sources."""
MAX_LOOKUPS = 64
"""The most requests that the sidecar itself sends to the data source on behalf of the agent."""
MAX_GRAPHQL_TOKENS = 2_000
"""The most tokens of all GraphQL documents in the request together."""
MAX_GRAPHQL_CHARACTERS = 64 * 1024
"""The most characters of these documents, not counting long plain strings. Limiting the tokens is
not enough, since a token may have any length."""
MAX_ARGUMENTS = 4_096
"""The most members and lists that are searched for names in the arguments of searches. Numbers in a
list, such as a vector's, don't count."""


class OverBudget(Malformed):
    """the request costs more than one request may"""


class Budget:
    """The remaining budget of one request. Not shared between requests."""

    # Defaults of the class: every request has a budget, and most charge nothing.
    _sources: set[str] | None = None
    _parts = MAX_PARTS
    _keys = MAX_KEYS
    _lookups = MAX_LOOKUPS
    _arguments = MAX_ARGUMENTS
    _graphql_tokens = MAX_GRAPHQL_TOKENS
    _graphql_characters = MAX_GRAPHQL_CHARACTERS
    _ended = False

    def end(self) -> None:
        """Notes that the client no longer waits for the request. Any thread may call it."""
        self._ended = True

    def check(self) -> None:
        """Raises `OverBudget` if the request has ended. For long work that charges nothing."""
        if self._ended:
            raise OverBudget("the request has ended")

    def charge_sources(self, names: Iterable[str]) -> None:
        """Charges sources by name. A name already charged is free."""
        self.check()
        if self._sources is None:
            self._sources = set()
        sources = self._sources
        # Checked at every name: `names` may be lazy, and reading it is work too.
        for name in names:
            sources.add(name)
            if len(sources) > MAX_SOURCES:
                raise OverBudget(f"the request names more than {MAX_SOURCES} sources")

    # A count falls below zero before the charge is refused, and stays there: even if a caller
    # catches the first refusal, the next charge of that kind is refused too.

    def charge_parts(self, count: int) -> None:
        """Charges lines or sub-requests."""
        self.check()
        self._parts -= count
        if self._parts < 0:
            raise OverBudget(f"the body has more than {MAX_PARTS} lines or sub-requests")

    def charge_key(self) -> None:
        """Charges one key that the request names to delete it together with others."""
        self.check()
        self._keys -= 1
        if self._keys < 0:
            raise OverBudget(f"the body names more than {MAX_KEYS} keys, the most in one request")

    def charge_lookup(self) -> None:
        """Charges one request that the sidecar sends to find out what a name means."""
        self.check()
        self._lookups -= 1
        if self._lookups < 0:
            raise OverBudget(f"the request takes more than {MAX_LOOKUPS} look-ups")

    @property
    def graphql_tokens(self) -> int:
        """The tokens left, for a parser that enforces the limit itself."""
        return self._graphql_tokens

    def charge_graphql_tokens(self, count: int) -> None:
        """Charges the tokens of one document."""
        self.check()
        self._graphql_tokens -= count
        if self._graphql_tokens < 0:
            raise OverBudget(f"the queries have more than {MAX_GRAPHQL_TOKENS} tokens")

    def charge_graphql_characters(self, count: int) -> None:
        """Charges the characters of one document."""
        self._graphql_characters -= count
        if self._graphql_characters < 0:
            raise OverBudget(f"the queries have more than {MAX_GRAPHQL_CHARACTERS} characters")

    def charge_arguments(self, count: int) -> None:
        """Charges members and lists in the arguments of a search."""
        self.check()
        self._arguments -= count
        if self._arguments < 0:
            raise OverBudget(f"the arguments hold more than {MAX_ARGUMENTS} values")
