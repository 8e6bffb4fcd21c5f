"""Changes Bedrock's requests and reads its responses: sets the user, adds the condition on document
levels, checks the results against it, and finds the tokens of continuations.

Knows the bodies of requests and responses. Knows no routes.
"""

from typing import Any

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.protocols.messages import FetchedResponse, Fields, ForwardedPart
from sidecar.protocols.shared.responses import (
    DocumentLevels,
    expect_list,
    expect_object,
    response_object,
    to_json,
)

_SEARCHES = ("vectorSearchConfiguration", "managedSearchConfiguration")


def with_user(body: dict[str, Any] | None, user: str) -> dict[str, Any]:
    """Return `body` on behalf of `user`."""
    # Replaces any user that the caller stated: a knowledge base with access lists returns only what
    # the user in `userContext` may read.
    return {**(body or {}), "userContext": {"userId": user}}


def check_search(body: dict[str, Any]) -> None:
    """Check that a condition can be added to the search of a `Retrieve`. Raises `Malformed`."""
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
    """Return `body` with a condition, so that a `Retrieve` finds only documents of these levels:
    both the condition and the caller's own filter must hold."""
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
    """Withholds the results of a `Retrieve` that the agent may not see. Raises `UpstreamFailed`."""
    whole = response_object(response)
    results = expect_list(whole.get("retrievalResults"), "list of results")
    kept = [
        each
        for each in results
        if levels.may_see(expect_object(each, "result").get("metadata", {}))
    ]
    if len(kept) == len(results):
        # Bedrock's own bytes, since nothing was withheld.
        return ForwardedPart(response.body)
    body = to_json({**whole, "retrievalResults": kept})
    return ForwardedPart(body, len(results) - len(kept))


def text_member(response: FetchedResponse, member: str) -> str | None:
    """Return the string in a member of a response; None if it is absent. Raises
    `UpstreamFailed`."""
    value = response_object(response).get(member)
    if value is not None and not isinstance(value, str):
        raise UpstreamFailed(f"`{member}` of the data source's response is not a string")
    return value


def single_field(fields: Fields, name: bytes) -> str | None:
    """Return the value of a response's header field; None unless it occurs exactly once."""
    # If there are two, the agent may use either. Neither is remembered, so both are denied later.
    found = [value for each, value in fields if each.lower() == name]
    return found[0].decode("latin-1") if len(found) == 1 else None
