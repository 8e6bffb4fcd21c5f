"""Finds the sources of a Bedrock request: those that its path and its body name, at any depth, and
those that its tokens stand for. Also adds conditions to requests, and filters responses.

A page, session or execution token stands for the sources of the request whose response contained
it. A session or memory whose name the caller chooses belongs to the first user who states it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.protocols.protocol import (
    FetchedResponse,
    Fields,
    ForwardedPart,
    RoutedRequest,
    Sources,
    Unresolved,
)
from sidecar.protocols.shared.caches import Continuations
from sidecar.protocols.shared.responses import (
    DocumentLevels,
    expect_list,
    expect_object,
    response_object,
    to_json,
)
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.shared.strict_queries import parse_query
from sidecar.settings.model import Source

_SEARCHES = ("vectorSearchConfiguration", "managedSearchConfiguration")


def with_user(body: dict[str, Any] | None, user: str) -> dict[str, Any]:
    # Replaces any user that the caller stated: a knowledge base with access lists returns only what
    # the user in `userContext` may read.
    return {**(body or {}), "userContext": {"userId": user}}


def check_search(body: dict[str, Any]) -> None:
    """Raise `Malformed` unless a condition can be added to the search of a `Retrieve`."""
    # A search of an unknown kind would run without the condition.
    configuration = body.get("retrievalConfiguration")
    parts = [configuration]
    if isinstance(configuration, dict):
        parts += [configuration.get(name) for name in _SEARCHES]
        if not set(configuration) <= set(_SEARCHES):
            raise Malformed("`retrievalConfiguration` holds an unknown kind of search")
    if not all(part is None or isinstance(part, dict) for part in parts):
        raise Malformed("`retrievalConfiguration` and the searches in it must be objects")


def narrow(body: dict[str, Any], levels: DocumentLevels) -> dict[str, Any]:
    """Return the `body` of a `Retrieve` with an added condition, so that it finds only documents of
    these levels; the caller's own filter still holds."""
    if not levels.filterable:
        # The agent may see documents without a level, and these would match no condition on it.
        return body
    configuration = body.get("retrievalConfiguration") or {}
    # A knowledge base supports one of the two kinds, and only the caller knows which. A request
    # that names neither gets the condition for a vector search.
    searches = [name for name in _SEARCHES if name in configuration] or [_SEARCHES[0]]
    [field] = levels.path
    condition = {"in": {"key": field, "value": list(levels.levels)}}
    configuration = dict(configuration)
    for name in searches:
        search = configuration.get(name) or {}
        own = search.get("filter")
        both = condition if own is None else {"andAll": [own, condition]}
        configuration[name] = {**search, "filter": both}
    return {**body, "retrievalConfiguration": configuration}


def filter_results(response: FetchedResponse, levels: DocumentLevels) -> ForwardedPart:
    """Return the response to a `Retrieve` without the results that the agent may not see. Raises
    `UpstreamFailed`."""
    whole = response_object(response)
    results = expect_list(whole.get("retrievalResults"), "list of results")
    metadata = [expect_object(each, "result").get("metadata", {}) for each in results]
    kept = [each for each, own in zip(results, metadata, strict=True) if levels.may_see(own)]
    if len(kept) == len(results):
        # Bedrock's own bytes, since nothing was withheld.
        return ForwardedPart(response.body)
    body = to_json({**whole, "retrievalResults": kept})
    return ForwardedPart(body, len(results) - len(kept))


def text_member(response: FetchedResponse, member: str) -> str | None:
    """Return the string in one member of a response; None if the member is absent. Raises
    `UpstreamFailed` for any other value."""
    value = response_object(response).get(member)
    if value is not None and not isinstance(value, str):
        raise UpstreamFailed(f"`{member}` of the data source's response is not a string")
    return value


def single_field(fields: Fields, name: bytes) -> str | None:
    """Return the value of a response's header field; None unless it occurs exactly once."""
    # If there are two, the agent may use either. Neither is remembered, so both are denied later.
    found = [value for each, value in fields if each.lower() == name]
    return found[0].decode("latin-1") if len(found) == 1 else None


# AWS writes identifiers in capitals. It may accept lower case too, so that is refused.
_IDENTIFIER = re.compile(r"[0-9A-Z]{1,10}").fullmatch
_OWNER = r"arn:aws(?:-[a-z]+)*:bedrock:[a-z0-9-]{1,20}:[0-9]{12}"
_KNOWLEDGE_BASE = re.compile(rf"{_OWNER}:knowledge-base/([0-9A-Z]{{1,10}})").fullmatch
_AGENT_ALIAS = re.compile(rf"{_OWNER}:agent-alias/([0-9A-Z]{{1,10}})/([0-9A-Z]{{1,10}})").fullmatch
# A bucket's own name, and a key. An address with another scheme (`https:`) could point anywhere.
_S3 = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(.+)", re.DOTALL).fullmatch

Parts = tuple[str, ...]
"""The segments of a source id after `bedrock://<alias>/`."""

Values = tuple[str, ...]
"""The values of the `{names}` in a path pattern, in order."""


def identifier(text: object) -> str:
    """Return `text` if it is an AWS identifier. Raises `Unresolved` if it is an ARN or another
    spelling."""
    # AWS accepts an ARN in some of these places. Policies name only one form, so a second one would
    # pass by a rule that denies the first.
    if not isinstance(text, str) or not _IDENTIFIER(text):
        raise Unresolved("a Bedrock resource must be named by its identifier, in capitals")
    return text


def named_sources(body: Any) -> list[Parts]:
    """Return all sources that a body names. Raises `Malformed` and `Unresolved`."""
    # Search at any depth, by the members' names alone: new operations put known members in new
    # places.
    found: list[Parts] = []
    pending = [body]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            found += _names_in(node)
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return found


def _names_in(node: dict[str, Any]) -> Iterator[Parts]:
    # A parser that ignores case would accept these members in any spelling, so match them that way.
    # If one object has two spellings, two parsers may read different ones.
    members = {name.lower(): value for name, value in node.items()}
    if len(members) != len(node):
        raise Malformed("two members of the body differ only in case")
    for name, value in members.items():
        match name:
            case "knowledgebaseid":
                yield (identifier(value),)
            case "knowledgebasearn":
                yield _by_arn(_KNOWLEDGE_BASE, value)
            case "agentaliasarn":
                yield ("agent", *_by_arn(_AGENT_ALIAS, value))
            case "externalsourcesconfiguration":
                # Judged in addition to the S3 objects in it, since it may also hold documents
                # inline.
                yield ("external-sources",)
            case "memoryid":
                yield ("memory", _expect_text(value))
            case "lambda" | "overridelambda":
                yield ("lambda", _expect_text(value))
            case "uri" if isinstance(value, str) and value.lower().startswith("s3:"):
                yield _object(value)
            case "s3location":
                yield _object(value.get("uri") if isinstance(value, dict) else None)
            case "s3bucketname":
                key = _expect_text(members.get("s3objectkey"))
                yield _object(f"s3://{_expect_text(value)}/{key}")


def _by_arn(form: Callable[[str], re.Match[str] | None], value: object) -> Parts:
    if (found := form(_expect_text(value))) is None:
        raise Unresolved("a Bedrock resource is named by an ARN of an unknown form")
    return found.groups()


def _object(value: object) -> Parts:
    if (found := _S3(_expect_text(value))) is None:
        raise Unresolved("a source is named by an address other than `s3://<bucket>/<key>`")
    # The key's slashes divide the source id, so that policies can allow a folder.
    return ("s3", found[1], *found[2].split("/"))


def _expect_text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise Unresolved("a source's name must be a string that is not empty")
    return value


def no_source(_values: Values) -> Parts:
    return ()


def _identified(*kind: str) -> Callable[[Values], Parts]:
    """Return a function that makes the id of a source from a path's values: the segments in `kind`,
    then the first two values, which must be AWS identifiers."""
    return lambda values: (*kind, *map(identifier, values[:2]))


knowledge_base, agent, flow = _identified(), _identified("agent"), _identified("flow")


def document(values: Values) -> Parts:
    return (*knowledge_base(values), values[2])


def execution(values: Values) -> list[str]:
    return [f"execution:{values[2]}"]


def conversation(values: Values, statement: dict[str, Any]) -> list[str]:
    # The caller chooses their names, so another user could choose the same ones, and responses may
    # repeat what was said in them. A path with two values names an agent and its alias, but no
    # session.
    tokens = [] if len(values) == 2 else ["agent session:" + "/".join(values)]
    memory = statement.get("memoryId")
    return tokens if memory is None else [*tokens, f"memory:{memory}"]


def _no_tokens(*_of: object) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class OperationNames:
    """Says where the requests of one operation name their sources, and which names they may
    contain."""

    path_source: Callable[[Values], Parts] = no_source
    """Makes the segments of the source's id from the values of the path."""
    members: frozenset[str] = frozenset()
    """The members that the body may have."""
    parameters: frozenset[str] = frozenset()
    """The parameters that the query may have."""
    source_required: bool = False
    """True if the body must name a source, or a session that stands for one."""
    tokens: Callable[[Values], list[str]] = _no_tokens
    """Returns the tokens in the path, which Bedrock issued."""
    claims: Callable[[Values, dict[str, Any]], list[str]] = _no_tokens
    """Returns the names in the path, query and body that the caller chooses freely, and that the
    first user of a name owns."""


TokenKind = Literal["page", "session", "execution"]

# The members and parameters that hold a token of an earlier response. A token is remembered with
# its kind, so a page's token can't be presented as a session's.
_TOKENS = {"nextToken": "page", "sessionId": "session", "executionId": "execution"}


class BedrockSources:
    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self._naming = SourceNames(source)
        self._issued = Continuations(monotonic)

    def find(self, request: RoutedRequest, names: OperationNames) -> Sources:
        """Return the sources of a request. Raises `Malformed` and `Unresolved`."""
        query, body = parse_query(request.target.query), request.body or {}
        # An unknown parameter or member may be a new way to name a source.
        if not names.parameters.issuperset(query):
            raise Malformed("the query holds an unknown parameter")
        for name in body:
            if name not in names.members:
                raise Malformed(f"unknown member `{name[:64]}` in the body")
        check_search(body)
        named = [*named_sources(query), *named_sources(body)]
        # In a session, Bedrock may continue with the sources of an earlier request.
        if names.source_required and not named and "sessionId" not in body:
            raise Unresolved("the request does not name a source that it reads")
        if path_source := names.path_source(request.path_params):
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
        """Make the caller the owner of the session and memory names that it chose. `find` has
        already checked that they have no other owner."""
        statement = {**parse_query(request.target.query), **(request.body or {})}
        for token in names.claims(request.path_params, statement):
            self._issued.remember(token, request.attribution, sources)

    def issue(
        self, kind: TokenKind, token: str | None, request: RoutedRequest, sources: Sources
    ) -> None:
        if token:
            self._issued.remember(f"{kind}:{token}", request.attribution, sources)


def _tokens(statement: dict[str, Any]) -> list[str]:
    tokens = []
    for name, kind in _TOKENS.items():
        if (value := statement.get(name)) is not None:
            if not isinstance(value, str):
                raise Malformed(f"`{name}` must be a string")
            tokens.append(f"{kind}:{value}")
    return tokens
