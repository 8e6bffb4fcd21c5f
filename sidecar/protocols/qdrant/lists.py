"""Reads and filters Qdrant's lists of collections and aliases. Pure."""

from collections.abc import Callable
from typing import Any

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.messages import FetchedResponse, ForwardedPart, Visibility
from sidecar.protocols.shared.json_responses import (
    expect_list,
    expect_object,
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
        _text(each, "alias_name"): _text(each, "collection_name")
        for each in expect_list(result.get("aliases"), "list of aliases")
    }


def list_filter(
    member: str, name: str, naming: SourceNames, visibility: Visibility
) -> Callable[[FetchedResponse], ForwardedPart]:
    """A filter for a list response. It keeps the elements of `result.<member>` whose collection,
    named in the element's member `name`, may be seen."""

    def filter_list(response: FetchedResponse) -> ForwardedPart:
        whole = response_object(response)
        result = expect_object(whole.get("result"), "result")
        elements = expect_list(result.get(member), "list")
        kept = [each for each in elements if visibility.permits(naming.of(_text(each, name)))]
        if len(kept) == len(elements):
            return ForwardedPart(response.body)
        return ForwardedPart(to_json({**whole, "result": {**result, member: kept}}))

    return filter_list


def _text(element: Any, member: str) -> str:
    value = expect_object(element, "list").get(member)
    if not isinstance(value, str) or not value:
        raise UpstreamFailed(f"the data source's list has an element without `{member}`")
    return value
