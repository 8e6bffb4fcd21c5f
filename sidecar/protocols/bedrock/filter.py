"""What is added to a Bedrock retrieval, and what is looked for in its answer: the user, the
condition on documents' levels, the proof that the answer keeps to it, the token of the next page.

Knows the bodies of requests and answers. Knows no route.
"""

from typing import Any

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.protocols.messages import FetchedResponse, Fields, ForwardedPart, Visibility
from sidecar.protocols.shared.document_levels import (
    DocumentLevels,
    expect_list,
    expect_object,
    to_json,
)

_SEARCHES = ("vectorSearchConfiguration", "managedSearchConfiguration")


def for_user(body: dict[str, Any] | None, user: str) -> dict[str, Any]:
    """`body` on behalf of this user, whatever it said: a knowledge base that knows who may read its
    documents leaves out the others."""
    return {**(body or {}), "userContext": {"userId": user}}


def levels_of(sight: Visibility) -> DocumentLevels | None:
    """As `document_levels.levels_of`, but metadata is one flat map: a dot is part of a name."""
    return None if sight.levels is None else DocumentLevels((sight.field,), sight.levels)


def check_search(body: dict[str, Any]) -> None:
    """Raises `Malformed` where a condition could not be added to the search of a `Retrieve`."""
    configuration = body.get("retrievalConfiguration")
    parts = [configuration]
    if isinstance(configuration, dict):
        parts += [configuration.get(name) for name in _SEARCHES]
        if not set(configuration) <= set(_SEARCHES):
            raise Malformed("the body describes a search that is not known here")
    if not all(part is None or isinstance(part, dict) for part in parts):
        raise Malformed("the body describes its search in another form than an object")


def narrowed(body: dict[str, Any], marks: DocumentLevels, field: str) -> dict[str, Any]:
    """A `Retrieve` that finds only documents of these levels: the condition stands beside the
    caller's own, and both must hold."""
    if not marks.filterable:
        return body
    configuration = body.get("retrievalConfiguration") or {}
    # A knowledge base is searched in one of two ways, and the request knows in which.
    searches = [name for name in _SEARCHES if name in configuration] or [_SEARCHES[0]]
    condition = {"in": {"key": field, "value": list(marks.levels)}}
    configuration = dict(configuration)
    for name in searches:
        search = configuration.get(name) or {}
        own = search.get("filter")
        both = condition if own is None else {"andAll": [own, condition]}
        configuration[name] = {**search, "filter": both}
    return {**body, "retrievalConfiguration": configuration}


def checked(answer: bytes, marks: DocumentLevels) -> ForwardedPart:
    """The results of a `Retrieve` that may be seen. Raises `UpstreamFailed`."""
    whole = parsed(answer)
    results = expect_list(whole.get("retrievalResults"), "list of results")
    kept = [
        each for each in results if marks.may_see(expect_object(each, "result").get("metadata", {}))
    ]
    if len(kept) == len(results):
        return ForwardedPart(answer)
    body = to_json({**whole, "retrievalResults": kept})
    return ForwardedPart(body, len(results) - len(kept))


def parsed(answer: bytes) -> dict[str, Any]:
    """The JSON object of an answer; raises `UpstreamFailed`."""
    try:
        return expect_object(orjson.loads(answer), "answer")
    except orjson.JSONDecodeError as error:
        raise UpstreamFailed("the data source's answer can't be read") from error


def stated(answer: FetchedResponse, member: str) -> str | None:
    """The text of a member of an answer, None where it has none. Raises `UpstreamFailed`."""
    value = parsed(answer.body).get(member)
    if value is not None and not isinstance(value, str):
        raise UpstreamFailed(f"the data source's answer has a `{member}` that is no text")
    return value


def of_head(fields: Fields, name: bytes) -> str | None:
    """The value of an answer's field that stands once."""
    found = [value for each, value in fields if each.lower() == name]
    return found[0].decode("latin-1") if len(found) == 1 else None
