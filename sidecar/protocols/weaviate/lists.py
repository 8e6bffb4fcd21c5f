"""Weaviate's lists of names: what aliases stand for, and which names may be seen. Pure."""

from collections.abc import Callable
from typing import Any

import orjson

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.messages import FetchedResponse, ForwardedPart, Visibility
from sidecar.protocols.shared.document_levels import expect_list, expect_object, to_json
from sidecar.protocols.shared.source_names import SourceNames

Read = Callable[[FetchedResponse], ForwardedPart]


def aliases_of(answer: Any) -> dict[str, str]:
    """Alias -> collection, of `GET /v1/aliases`."""
    found = expect_object(answer, "list of aliases").get("aliases")
    return {
        _text(each, "alias"): _text(each, "class")
        for each in expect_list(found or [], "list of aliases")
    }


def listed(member: str, name: str, naming: SourceNames, sight: Visibility) -> Read:
    """Of the elements of `<member>` those stay whose collection, in `name`, may be seen."""

    def read(answer: FetchedResponse) -> ForwardedPart:
        whole = expect_object(_parsed(answer), "answer")
        found = expect_list(whole.get(member) or [], "list")
        seen = [each for each in found if sight.permits(naming.of(_text(each, name)))]
        if len(seen) == len(found):
            return ForwardedPart(answer.body)
        return ForwardedPart(to_json({**whole, member: seen}))

    return read


def tenants_listed(of: str, naming: SourceNames, sight: Visibility) -> Read:
    """Of the tenants of the collection `of` those that may be seen."""

    def read(answer: FetchedResponse) -> ForwardedPart:
        found = expect_list(_parsed(answer), "list of tenants")
        seen = [each for each in found if sight.permits(naming.of(of, _text(each, "name")))]
        return ForwardedPart(answer.body if len(seen) == len(found) else to_json(seen))

    return read


def nodes_listed(naming: SourceNames, sight: Visibility) -> Read:
    """The nodes, with those shards of which collection and tenant may be seen: a tenant's shard has
    its name. Without the totals, which count the others too."""

    def read(answer: FetchedResponse) -> ForwardedPart:
        whole = expect_object(_parsed(answer), "answer")
        for node in expect_list(whole.get("nodes"), "list of nodes"):
            expect_object(node, "node").pop("stats", None)
            shards = expect_list(node.get("shards") or [], "list of shards")
            node["shards"] = [each for each in shards if _shows(each, naming, sight)]
        return ForwardedPart(to_json(whole))

    return read


def _shows(shard: Any, naming: SourceNames, sight: Visibility) -> bool:
    name = _text(shard, "class")
    whose = _text(shard, "name")
    return sight.permits(naming.of(name)) and sight.permits(naming.of(name, whose))


def _parsed(answer: FetchedResponse) -> Any:
    try:
        return orjson.loads(answer.body)
    except orjson.JSONDecodeError as error:
        raise UpstreamFailed("the data source's answer is not JSON") from error


def _text(element: Any, member: str) -> str:
    value = expect_object(element, "list").get(member)
    if not isinstance(value, str) or not value:
        raise UpstreamFailed(f"the data source's list has an element without `{member}`")
    return value
