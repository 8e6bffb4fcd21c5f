"""Filters Weaviate's lists of collections, aliases, tenants, nodes and objects. Pure."""

from collections.abc import Callable
from typing import Any

from sidecar.protocols.messages import FetchedResponse, ForwardedPart, Visibility
from sidecar.protocols.shared.responses import (
    DocumentLevels,
    expect_list,
    expect_object,
    expect_text,
    response_json,
    response_object,
    to_json,
)
from sidecar.protocols.shared.source_names import SourceNames

ResponseFilter = Callable[[FetchedResponse], ForwardedPart]


def parse_aliases(body: Any) -> dict[str, str]:
    """Return the collection of each alias, from the response to `GET /v1/aliases`."""
    found = expect_object(body, "list of aliases").get("aliases")
    return {
        expect_text(each, "alias"): expect_text(each, "class")
        for each in expect_list(found or [], "list of aliases")
    }


def collection_filter(
    member: str, source_names: SourceNames, visibility: Visibility
) -> ResponseFilter:
    """Filters the list in `member` by the collection that each element has in `class`."""

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        whole = response_object(response)
        found = expect_list(whole.get(member) or [], "list")
        visible = [
            each
            for each in found
            if visibility.permits(source_names.of(expect_text(each, "class")))
        ]
        # A list without a hidden element passes as Weaviate wrote it, byte for byte.
        if len(visible) == len(found):
            return ForwardedPart(response.body)
        return ForwardedPart(to_json({**whole, member: visible}))

    return filter_response


def tenant_filter(
    collection: str, source_names: SourceNames, visibility: Visibility
) -> ResponseFilter:
    """Filters a list of a collection's tenants."""

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        found = expect_list(response_json(response), "list of tenants")
        visible = [
            each
            for each in found
            if visibility.permits(source_names.of(collection, expect_text(each, "name")))
        ]
        return ForwardedPart(response.body if len(visible) == len(found) else to_json(visible))

    return filter_response


def node_filter(source_names: SourceNames, visibility: Visibility) -> ResponseFilter:
    """Filters the shards of each node."""

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        whole = response_object(response)
        for node in expect_list(whole.get("nodes"), "list of nodes"):
            # The totals count hidden shards too.
            expect_object(node, "node").pop("stats", None)
            shards = expect_list(node.get("shards") or [], "list of shards")
            node["shards"] = [
                each for each in shards if _may_see_shard(each, source_names, visibility)
            ]
        return ForwardedPart(to_json(whole))

    return filter_response


def object_filter(levels: DocumentLevels) -> ResponseFilter:
    """Filters the objects of `{"objects": [{"properties"}], "totalResults"}` by their levels."""

    def filter_response(response: FetchedResponse) -> ForwardedPart:
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

    return filter_response


def _may_see_shard(shard: Any, source_names: SourceNames, visibility: Visibility) -> bool:
    collection = expect_text(shard, "class")
    # The shard of a tenant has the tenant's name. Nothing in a shard says whether its collection
    # has tenants, so both must be visible.
    tenant = expect_text(shard, "name")
    return visibility.permits(source_names.of(collection)) and visibility.permits(
        source_names.of(collection, tenant)
    )
