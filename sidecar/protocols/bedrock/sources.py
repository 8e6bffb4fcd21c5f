"""What a Bedrock request concerns: what its path names, what its body names, what its tokens stand
for. Pages, sessions and executions stand for what they were issued for; a session or memory whose
name the caller chooses belongs to whoever states it first. Knows no route."""

from collections.abc import Callable
from typing import Any

from policies.ground.errors import Malformed
from sidecar.protocols.bedrock import references as refer
from sidecar.protocols.bedrock.filter import check_search
from sidecar.protocols.bedrock.references import ReferenceNames
from sidecar.protocols.messages import RoutedRequest, SourceRef, Unresolved
from sidecar.protocols.shared.aws_query import parse_query
from sidecar.protocols.shared.continuations import Continuations
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.settings.model import Source

Places = tuple[SourceRef, ...]

# What, in a body or a query, stands for something earlier, and for what kind of thing.
_TOKENS = {"nextToken": "page", "sessionId": "session", "executionId": "execution"}


class BedrockSources:
    """Those of one region of one account."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self._naming = SourceNames(source)
        self._issued = Continuations(monotonic)

    def named(self, asked: RoutedRequest, names: ReferenceNames) -> Places:
        """What a request concerns. Raises `Malformed`, `Unresolved`."""
        query, body = parse_query(asked.target.query), asked.body or {}
        if not names.query.issuperset(query):
            raise Malformed("the query holds a parameter that is not known here")
        refer.only(body, names.members)
        check_search(body)
        told = [*refer.references(query), *refer.references(body)]
        if names.some and not told and "sessionId" not in body:
            raise Unresolved("the request names no source that it reads")
        own = names.own(asked.path_params)
        places = [self._naming.of(*parts) for parts in ([own, *told] if own else told)]
        for token in (*_tokens(query), *_tokens(body), *names.issued(asked.path_params)):
            places += self._issued.sources_of(token, asked.attribution)
        for token in names.claimed(asked.path_params, {**query, **body}):
            self._issued.check_owner(token, asked.attribution)
        return tuple(dict.fromkeys(places))

    def claim(self, asked: RoutedRequest, names: ReferenceNames, places: Places) -> None:
        """What the caller named, and nobody else holds, is the caller's."""
        stated = {**parse_query(asked.target.query), **(asked.body or {})}
        for token in names.claimed(asked.path_params, stated):
            self._issued.remember(token, asked.attribution, places)

    def issue(self, kind: str, token: str | None, asked: RoutedRequest, places: Places) -> None:
        """Remembers a token of this kind, if an answer held one."""
        if token:
            self._issued.remember(f"{kind}:{token}", asked.attribution, places)


def _tokens(stated: dict[str, Any]) -> list[str]:
    tokens = []
    for name, kind in _TOKENS.items():
        value = stated.get(name)
        if value is not None:
            if not isinstance(value, str):
                raise Malformed(f"`{name}` is no text")
            tokens.append(f"{kind}:{value}")
    return tokens
