"""Plans how calls of Weaviate's gRPC API are forwarded and how their responses are filtered, by the
rules for GraphQL (`forwarding.py`): a search gets a condition in addition to the caller's own, the
level is requested, and each object of the response is checked. Only plain searches are filtered.
"""

from collections.abc import Iterator
from typing import Any

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.grpc.protobuf import Message, Values
from sidecar.protocols.protocol import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    ForwardedPart,
    ForwardPlan,
    RoutedRequest,
    Visibility,
)
from sidecar.protocols.shared.responses import DocumentLevels, expect_text, levels_of
from sidecar.protocols.weaviate.forwarding import PLAIN_NAME, WeaviateForwarding
from sidecar.protocols.weaviate.grpc_schema import SCHEMA
from sidecar.protocols.weaviate.grpc_sources import GrpcSources
from sidecar.protocols.weaviate.names import ResponseFilter, parse_collection

_PLAIN = frozenset((
    "collection", "tenant", "consistency_level", "properties", "metadata", "limit", "offset",
    "autocut", "sort_by", "filters", "hybrid_search", "bm25_search", "near_vector", "near_text",
    "near_image", "near_audio", "near_video", "near_depth", "near_thermal", "near_imu", "rerank",
    "uses_123_api", "uses_125_api", "uses_127_api",
))  # fmt: skip
_PLAIN_PROPERTIES = frozenset(("non_ref_properties", "return_all_nonref_properties"))
# The members of a response to a plain search.
_PLAIN_REPLY = frozenset(("took", "results", "generative_grouped_result"))
_PLAIN_RESULT = frozenset(("properties", "metadata"))
# The two members of which one holds an object's properties (`grpc_schema.py`).
_HOLDERS = ("non_ref_props", "non_ref_properties")
_EQUAL, _AND, _OR = 1, 7, 8


def can_filter(search: Values, field: str) -> bool:
    """Return whether objects can be withheld from the response to this search by their levels in
    `field`."""
    return not (
        PLAIN_NAME.match(field) is None
        or search.keys() - _PLAIN
        or search.get("properties", {}).keys() - _PLAIN_PROPERTIES
        # Figures of every part of the collection, however few objects are found.
        or "query_profile" in search.get("metadata", {})
        # These start from another object, or from another search.
        or search.get("near_text", {}).keys() & {"move_to", "move_away"}
        or "near_text" in search.get("hybrid_search", {})
    )


def add_filter(search: Values, levels: DocumentLevels) -> tuple[Values, bool]:
    """Return the search with the condition and the level's property added. Also returns whether
    the property had to be added, because the caller did not select it."""
    [level] = levels.path
    changed = dict(search)
    if levels.filterable:
        condition = _level_condition(levels)
        own = search.get("filters")
        if own is not None:
            condition = {"operator": _AND, "filters": [condition, own]}
        changed["filters"] = condition
    selected = search.get("properties")
    # Without a selection, Weaviate returns all properties.
    if selected is None:
        return changed, False
    names = selected.get("non_ref_properties", [])
    returns_all = "return_all_nonref_properties" in selected and "uses_123_api" in search
    if returns_all or level in (name[:1].lower() + name[1:] for name in names):
        return changed, False
    changed["properties"] = {**selected, "non_ref_properties": [*names, level]}
    return changed, True


def _level_condition(levels: DocumentLevels) -> Values:
    target = {"property": levels.path[0]}
    each = [{"operator": _EQUAL, "value_text": one, "target": target} for one in levels.levels]
    return {"operator": _OR, "filters": each}


def search_filter(levels: DocumentLevels, *, level_added: bool) -> ResponseFilter:
    """Return the function that filters the response to a plain search. `level_added` says that the
    level has to be removed again."""
    message = SCHEMA["SearchReply"]

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        reply = _decoded(message, response)
        if reply.keys() - _PLAIN_REPLY or reply.get("generative_grouped_result"):
            raise UpstreamFailed("the data source's response has results that were not requested")
        found = reply.get("results", [])
        visible = [each for each in found if _may_see(each, levels)]
        if len(visible) == len(found) and not level_added:
            return ForwardedPart(response.body)
        if level_added:
            for holder in _holders(visible):
                holder.pop(levels.path[0], None)
        changed = message.encode({**reply, "results": visible})
        return ForwardedPart(changed, len(found) - len(visible))

    return filter_response


def _may_see(result: Values, levels: DocumentLevels) -> bool:
    if result.keys() - _PLAIN_RESULT or "ref_props" in result.get("properties", {}):
        raise UpstreamFailed("the data source's response has results that were not requested")
    [level] = levels.path
    stated = [holder[level] for holder in _holders([result]) if level in holder]
    texts = [each.get("text_value", each.get("string_value")) for each in stated]
    # Both members must state a visible level, if both state one.
    return all(levels.may_see({level: text}) for text in texts or [None])


def _holders(results: list[Values]) -> Iterator[dict[str, Any]]:
    """Yield the properties of each result, by name, from whichever member holds them."""
    for result in results:
        for member in _HOLDERS:
            properties = result.get("properties", {}).get(member, {})
            if "fields" in properties:
                yield properties["fields"]


def _decoded(message: Message, response: FetchedResponse) -> Values:
    try:
        return message.decode(response.body).values
    except Malformed as error:
        # A response that can't be checked doesn't reach the agent.
        raise UpstreamFailed(f"the data source's response can't be read: {error}") from error


class GrpcForwarding(WeaviateForwarding, GrpcSources):
    def can_filter_grpc(self, search: Values) -> bool:
        """Return whether objects can be withheld from this search. If not, it is judged at
        `critical`, as if it returned everything."""
        return self._level_field is not None and can_filter(search, self._level_field)

    def filter_grpc_search(
        self, request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        levels = levels_of(visibility)
        if levels is None:
            return FORWARD_UNCHANGED
        changed, added = add_filter(request.body.values, levels)
        body = SCHEMA["SearchRequest"].encode(changed)
        return ForwardPlan(body, search_filter(levels, level_added=added))

    def filter_grpc_tenants(
        self, request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        # The aliases and definitions were just fetched for `of_grpc_tenants`, so they are cached.
        named = parse_collection(request.body.values.get("collection"))
        collection = self._cached_target(named, request)
        message = SCHEMA["TenantsGetReply"]

        def filter_response(response: FetchedResponse) -> ForwardedPart:
            reply = _decoded(message, response)
            found = reply.get("tenants", [])
            names = (expect_text(each, "name") for each in found)
            sources = [self.source_names.of(collection, name) for name in names]
            pairs = zip(found, sources, strict=True)
            visible = [each for each, source in pairs if visibility.permits(source)]
            if len(visible) == len(found):
                return ForwardedPart(response.body)
            return ForwardedPart(message.encode({**reply, "tenants": visible}))

        return ForwardPlan(filter_response=filter_response)
