"""Parses bodies on which a decision depends, and refuses those that two parsers could understand
differently (`protocols/RULES.md`, Bodies). Raises `Malformed`.

The `Budget` bounds the work of one request (`CONTRACT.md`, Budgets of one request), which is
charged before it is done. A charge over the limit, or of a request that has ended, raises
`OverBudget`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from policies.ground.canonical import parse_object, refuse_duplicates
from policies.ground.errors import Malformed

MAX_SOURCES = 64
"""The most distinct sources of one request. Each of them takes a decision and a record."""
MAX_PARTS = 1_000
"""The most lines of a bulk body, or sub-requests of a batch, in one request."""
MAX_KEYS = 1_000
"""The most keys that one request may name to delete them together: S3's own limit. They are judged
in slices, so they are not counted as sources."""
MAX_LOOKUPS = 64
"""The most requests that the sidecar itself sends to the data source to find out what one request's
names mean."""
MAX_GRAPHQL_TOKENS = 2_000
"""The most tokens of all GraphQL documents in one request together."""
MAX_GRAPHQL_CHARACTERS = 64 * 1024
"""The most characters of all GraphQL documents in one request, not counting long plain strings.
Limiting the tokens is not enough, since a token may have any length."""
MAX_ARGUMENTS = 4_096
"""The most members and list elements that are searched for names in the arguments of one request's
searches. Numbers in a list, such as a vector's, don't count."""


class OverBudget(Malformed):
    """the request costs more than one request may"""


class Budget:
    """The remaining budget of one request for work. Not shared between requests."""

    # Defaults of the class: every request has a budget, and most charge nothing.
    _sources: set[str] | None = None
    _parts = MAX_PARTS
    _keys = MAX_KEYS
    _lookups = MAX_LOOKUPS
    _arguments = MAX_ARGUMENTS
    graphql_tokens = MAX_GRAPHQL_TOKENS
    """The number of GraphQL tokens that are left, for a parser that enforces the limit itself."""
    _graphql_characters = MAX_GRAPHQL_CHARACTERS
    _ended = False

    def end(self) -> None:
        """Note that the client no longer waits for the request, so that work for it stops: later
        checks and charges raise `OverBudget`. Any thread may call it."""
        self._ended = True

    def check(self) -> None:
        """Raise `OverBudget` if the request has ended. Call it during long work that charges
        nothing."""
        if self._ended:
            raise OverBudget("the request has ended")

    def charge_sources(self, names: Iterable[str]) -> None:
        """Charge sources by name. A name that was charged before is free."""
        self.check()
        sources = self._sources = set() if self._sources is None else self._sources
        # Checked at every name: `names` may be lazy, and reading it is work too.
        for name in names:
            sources.add(name)
            if len(sources) > MAX_SOURCES:
                raise OverBudget(f"the request names more than {MAX_SOURCES} sources")

    # A count falls below zero before the charge is refused, and stays there: even if a caller
    # catches the first refusal, the next charge of that kind is refused too.

    def charge_parts(self, count: int) -> None:
        self.check()
        self._parts -= count
        if self._parts < 0:
            raise OverBudget(f"the body has more than {MAX_PARTS} lines or sub-requests")

    def charge_key(self) -> None:
        """Charge one key that the request names to delete it together with others."""
        self.check()
        self._keys -= 1
        if self._keys < 0:
            raise OverBudget(f"the body names more than {MAX_KEYS} keys, the most in one request")

    def charge_lookup(self) -> None:
        """Charge one request that the sidecar sends to find out what a name means."""
        self.check()
        self._lookups -= 1
        if self._lookups < 0:
            raise OverBudget(f"the request takes more than {MAX_LOOKUPS} look-ups")

    def charge_graphql_tokens(self, count: int) -> None:
        self.check()
        self.graphql_tokens -= count
        if self.graphql_tokens < 0:
            raise OverBudget(f"the queries have more than {MAX_GRAPHQL_TOKENS} tokens")

    def charge_graphql_characters(self, count: int) -> None:
        self.check()
        self._graphql_characters -= count
        if self._graphql_characters < 0:
            raise OverBudget(f"the queries have more than {MAX_GRAPHQL_CHARACTERS} characters")

    def charge_arguments(self, count: int) -> None:
        """Charge `count` members and list elements in the arguments of a search."""
        self.check()
        self._arguments -= count
        if self._arguments < 0:
            raise OverBudget(f"the arguments hold more than {MAX_ARGUMENTS} values")


BodyParser = Callable[[bytes, str | None, Budget], Any]

_NDJSON = frozenset(("application/x-ndjson", "application/json"))

MAX_BRACKETS = 100_000
"""The most `{` and `[` in a JSON body or response, including those inside strings, or `<` in XML.
Each may be an object to create. No other task can run while the parser creates these objects, nor
while the garbage collector then walks them."""

MAX_MEMBERS = 100_000
"""The most members of one parsed JSON text, estimated from its colons and quotation marks. One call
into C creates all of them, and the search for equal keys reads them again."""

MAX_DEPTH = 200
"""The most levels to which a JSON body may be nested. The sidecar may write the body again with a
condition around it, and orjson reads 1,024 levels but writes only 254."""

_WRITABLE_DEPTH = 254

_PIECE = 10_000
"""The number of list elements that are looked at between two checks whether the request has
ended."""


def has_too_many_brackets(raw: bytes) -> bool:
    if len(raw) <= MAX_BRACKETS:
        return False
    # XML may begin with a byte order mark, which the XML reader refuses later.
    if raw[:64].lstrip().startswith((b"<", b"\xef\xbb\xbf<")):
        return raw.count(b"<") > MAX_BRACKETS
    return raw.count(b"{") + raw.count(b"[") > MAX_BRACKETS


def json_object(raw: bytes, media_type: str | None, budget: Budget | None = None) -> dict[str, Any]:
    """Parse a body as one JSON object. Raises `Malformed`, also if a key occurs twice in an object.
    With `budget`, stops with `OverBudget` if the request ends meanwhile."""
    value = _object(raw, media_type, MAX_DEPTH)
    # Each call into C below takes up to 0.1 s of CPU time for the largest bodies.
    check = _unchecked if budget is None else budget.check
    check()
    # RFC 8259 section 4 leaves open which of two equal keys counts, so a data source may use a
    # different one from the one judged here. The parser silently keeps the last. Every member has a
    # colon, so if there are as many members as colons, no duplicate was dropped. The other ways are
    # for bodies whose strings contain colons too, and cost more: vectors are long.
    if raw.count(b":") != _count_members(value, check):
        _refuse_duplicates(raw, value, check)
        check()
    return value


def _unchecked() -> None:
    """Do nothing. Stands in for `Budget.check` where there is no budget, so that the work never
    stops early."""


def short_object(raw: bytes, max_depth: int) -> dict[str, Any]:
    """Parse a body as `json_object` does, in a way that is fast for bodies of few members and no
    vectors."""
    value = _object(raw, None, max_depth)
    _refuse_duplicates(raw, value, _unchecked)
    return value


def _object(raw: bytes, media_type: str | None, max_depth: int) -> dict[str, Any]:
    _limit_brackets(raw)
    # A member has a colon and two quotation marks at least. Both are counted, since the text of a
    # document may have many of either.
    many = len(raw) > MAX_MEMBERS and raw.count(b":") > MAX_MEMBERS
    if many and raw.count(b'"') // 2 > MAX_MEMBERS:
        raise OverBudget(f"the body has more than {MAX_MEMBERS} members in one JSON object")
    value = parse_object(raw, media_type, unique=False)
    # A body with fewer brackets than levels can't be too deep, and most have fewer.
    if raw.count(b"{") + raw.count(b"[") > max_depth:
        _check_depth(value, max_depth)
    return value


def _limit_brackets(raw: bytes) -> None:
    if len(raw) > MAX_BRACKETS and has_too_many_brackets(raw):
        raise OverBudget(f"the body has more than {MAX_BRACKETS} brackets")


def _refuse_duplicates(raw: bytes, value: dict[str, Any], check: Callable[[], None]) -> None:
    # Every key has two quotation marks, so if all of them are still there, no duplicate was
    # dropped: written again, a string has as many, unless it was written with this escape.
    if b"\\u0022" in raw or raw.count(b'"') != orjson.dumps(value).count(b'"'):
        check()
        refuse_duplicates(raw)


def optional_json_object(
    raw: bytes, media_type: str | None, budget: Budget | None = None
) -> dict[str, Any] | None:
    """Parse a body as `json_object` does; return None if the body is empty."""
    return json_object(raw, media_type, budget) if raw.strip() else None


def json_lines(raw: bytes, media_type: str | None, budget: Budget) -> list[dict[str, Any]]:
    """Parse a body with one JSON object per line, the form of bulk APIs. The last line may lack its
    newline. Raises `Malformed` and `OverBudget`."""
    kind = None if media_type is None else media_type.partition(";")[0].strip().lower()
    if kind is not None and kind not in _NDJSON:
        raise Malformed(f"the body's content type is `{kind[:64]}`, not `application/x-ndjson`")
    # Charged before anything is split or parsed: a body of `{}` lines may have a million of them.
    budget.charge_parts(raw.count(b"\n") + (not raw.endswith(b"\n")))
    _limit_brackets(raw)  # of all lines together
    lines = raw.split(b"\n")
    if lines and not lines[-1].strip():
        lines.pop()
    # Some servers read an empty line as an empty object, others skip it: here it is an error.
    return [json_object(line, None, budget) for line in lines]


def _check_depth(value: Any, max_depth: int) -> None:
    # orjson counts levels many times faster than a walk in Python would.
    for _ in range(_WRITABLE_DEPTH - max_depth):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise Malformed(f"the body is nested too deeply: more than {max_depth} levels") from error


def _count_members(value: dict[str, Any], check: Callable[[], None]) -> int:
    """Return the number of members of all objects in `value`, or a lower number: a list that begins
    with neither an object nor a list isn't searched. A count that is too low only leads to a slower
    search for duplicate keys. Calls `check` now and then, which may raise."""
    count = 0
    pending: list[Any] = [value]
    while pending:
        check()
        node = pending.pop()
        if type(node) is dict:
            count += len(node)
            pending += [each for each in node.values() if type(each) in (dict, list)]
        elif node and type(node[0]) in (dict, list):
            for at in range(0, len(node), _PIECE):
                check()
                piece = node[at : at + _PIECE]
                pending += [each for each in piece if type(each) in (dict, list)]
    return count
