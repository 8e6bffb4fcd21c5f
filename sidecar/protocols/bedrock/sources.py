"""Finds the sources of a Bedrock request: those that its path and body name, and those that its
tokens stand for. A page, session or execution stands for the sources that it was issued for. A
session or memory whose name the caller chooses belongs to the first user who states it. Knows no
routes."""

from collections.abc import Callable
from typing import Any, Literal

from policies.ground.errors import Malformed
from sidecar.protocols.bedrock.filter import check_search
from sidecar.protocols.bedrock.references import OperationNames, check_members, named_sources
from sidecar.protocols.messages import RoutedRequest, Unresolved
from sidecar.protocols.route_table import Sources
from sidecar.protocols.shared.aws_query import parse_query
from sidecar.protocols.shared.continuations import Continuations
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.settings.model import Source

TokenKind = Literal["page", "session", "execution"]

# The members and parameters that hold a token of an earlier response. A token is remembered with
# its kind, so a page's token can't be presented as a session's.
_TOKENS: dict[str, TokenKind] = {
    "nextToken": "page",
    "sessionId": "session",
    "executionId": "execution",
}


class BedrockSources:
    """The sources of one account in one region."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self._naming = SourceNames(source)
        self._issued = Continuations(monotonic)

    def find(self, request: RoutedRequest, names: OperationNames) -> Sources:
        """The sources of a request. Raises `Malformed` and `Unresolved`."""
        query, body = parse_query(request.target.query), request.body or {}
        # An unknown parameter may name a source, just like an unknown member.
        if not names.parameters.issuperset(query):
            raise Malformed("the query holds an unknown parameter")
        check_members(body, names.members)
        check_search(body)
        named = [*named_sources(query), *named_sources(body)]
        # In a session, Bedrock may continue with the sources of an earlier request.
        if names.source_required and not named and "sessionId" not in body:
            raise Unresolved("the request does not name a source that it reads")
        path_source = names.path_source(request.path_params)
        if path_source:
            named.insert(0, path_source)
        sources = [self._naming.of(*parts) for parts in named]
        for token in (*_tokens(query), *_tokens(body), *names.tokens(request.path_params)):
            sources += self._issued.sources_of(token, request.attribution)
        # Names are only checked here, since the request may still be denied. If it is allowed,
        # `claim` follows.
        for token in names.claims(request.path_params, {**query, **body}):
            self._issued.check_owner(token, request.attribution)
        return tuple(dict.fromkeys(sources))

    def claim(self, request: RoutedRequest, names: OperationNames, sources: Sources) -> None:
        """Make the caller the owner of the names that it chose. `find` has already checked that
        they have no other owner."""
        statement = {**parse_query(request.target.query), **(request.body or {})}
        for token in names.claims(request.path_params, statement):
            self._issued.remember(token, request.attribution, sources)

    def issue(
        self, kind: TokenKind, token: str | None, request: RoutedRequest, sources: Sources
    ) -> None:
        """Remember a token from a response, if there is one."""
        if token:
            self._issued.remember(f"{kind}:{token}", request.attribution, sources)


def _tokens(statement: dict[str, Any]) -> list[str]:
    tokens = []
    for name, kind in _TOKENS.items():
        value = statement.get(name)
        if value is not None:
            if not isinstance(value, str):
                raise Malformed(f"`{name}` must be a string")
            tokens.append(f"{kind}:{value}")
    return tokens
