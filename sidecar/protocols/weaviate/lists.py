"""Filters Weaviate's lists of collections, aliases, tenants, nodes and objects. Pure."""

from collections.abc import Callable
from typing import Any

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.messages import FetchedResponse, ForwardedPart, Visibility
from sidecar.protocols.shared.document_levels import DocumentLevels
from sidecar.protocols.shared.json_responses import (
    expect_list,
    expect_object,
    response_json,
    response_object,
    to_json,
)
from sidecar.protocols.shared.source_names import SourceNames

ResponseFilter = Callable[[FetchedResponse], ForwardedPart]


def parse_aliases(body: Any) -> dict[str, str]:
    """Alias -> collection, from `GET /v1/aliases`."""
    found = expect_object(body, "list of aliases").get("aliases")
    return {
        _string(each, "alias"): _string(each, "class")
        for each in expect_list(found or [], "list of aliases")
    }


def collection_filter(
    member: str, name: str, source_names: SourceNames, visibility: Visibility
) -> ResponseFilter:
    """Filters the list in `member` by the collection that each element has in `name`."""

    def read(response: FetchedResponse) -> ForwardedPart:
        whole = response_object(response)
        found = expect_list(whole.get(member) or [], "list")
        visible = [
            each for each in found if visibility.permits(source_names.of(_string(each, name)))
        ]
        if len(visible) == len(found):
            return ForwardedPart(response.body)
        return ForwardedPart(to_json({**whole, member: visible}))

    return read


def tenant_filter(
    collection: str, source_names: SourceNames, visibility: Visibility
) -> ResponseFilter:
    """Filters a list of a collection's tenants."""

    def read(response: FetchedResponse) -> ForwardedPart:
        found = expect_list(response_json(response), "list of tenants")
        visible = [
            each
            for each in found
            if visibility.permits(source_names.of(collection, _string(each, "name")))
        ]
        return ForwardedPart(response.body if len(visible) == len(found) else to_json(visible))

    return read


def node_filter(source_names: SourceNames, visibility: Visibility) -> ResponseFilter:
    """Filters the shards of each node. Removes the totals, which count hidden shards too."""

    def read(response: FetchedResponse) -> ForwardedPart:
        whole = response_object(response)
        for node in expect_list(whole.get("nodes"), "list of nodes"):
            expect_object(node, "node").pop("stats", None)
            shards = expect_list(node.get("shards") or [], "list of shards")
            node["shards"] = [
                each for each in shards if _may_see_shard(each, source_names, visibility)
            ]
        return ForwardedPart(to_json(whole))

    return read


def object_filter(levels: DocumentLevels) -> ResponseFilter:
    """Filters `{"objects": [{"properties"}], "totalResults"}`."""

    def read(response: FetchedResponse) -> ForwardedPart:
        whole = response_object(response)
        found = expect_list(whole.get("objects"), "list of objects")
        visible = [
            each
            for each in found
            if levels.may_see(expect_object(each, "object").get("properties"))
        ]
        if len(visible) == len(found):
            return ForwardedPart(response.body)
        whole["objects"] = visible
        # The total would reveal how many objects were withheld.
        if "totalResults" in whole:
            whole["totalResults"] = len(visible)
        return ForwardedPart(to_json(whole), len(found) - len(visible))

    return read


def _may_see_shard(shard: Any, source_names: SourceNames, visibility: Visibility) -> bool:
    collection = _string(shard, "class")
    # The shard of a tenant has the tenant's name.
    tenant = _string(shard, "name")
    return visibility.permits(source_names.of(collection)) and visibility.permits(
        source_names.of(collection, tenant)
    )


def _string(element: Any, member: str) -> str:
    value = expect_object(element, "list").get(member)
    if not isinstance(value, str) or not value:
        raise UpstreamFailed(f"the data source's list has an element without `{member}`")
    return value
