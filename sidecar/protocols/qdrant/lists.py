"""Reads and filters Qdrant's lists of collections and aliases. Pure."""

from collections.abc import Callable
from typing import Any

from sidecar.protocols.messages import FetchedResponse, ForwardedPart, Visibility
from sidecar.protocols.shared.json_responses import (
    expect_list,
    expect_object,
    expect_text,
    response_object,
    to_json,
)
from sidecar.protocols.shared.source_names import SourceNames


def parse_aliases(response: Any) -> dict[str, str]:
    """Alias -> collection, from the response to `GET /aliases`. Raises `UpstreamFailed`."""
    result = expect_object(
        expect_object(response, "list of aliases").get("result"), "list of aliases"
    )
    return {
        expect_text(each, "alias_name"): expect_text(each, "collection_name")
        for each in expect_list(result.get("aliases"), "list of aliases")
    }


def list_filter(
    member: str, name: str, source_names: SourceNames, visibility: Visibility
) -> Callable[[FetchedResponse], ForwardedPart]:
    """Filters the list in `result.<member>` by the collection that each element has in `name`."""

    def filter_list(response: FetchedResponse) -> ForwardedPart:
        whole = response_object(response)
        result = expect_object(whole.get("result"), "result")
        elements = expect_list(result.get(member), "list")
        visible = [
            each
            for each in elements
            if visibility.permits(source_names.of(expect_text(each, name)))
        ]
        # If nothing is hidden, the agent gets Qdrant's own bytes.
        if len(visible) == len(elements):
            return ForwardedPart(response.body)
        return ForwardedPart(to_json({**whole, "result": {**result, member: visible}}))

    return filter_list
