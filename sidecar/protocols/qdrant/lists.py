"""Qdrant's lists of names: what aliases stand for, and which names may be seen. Pure."""

from collections.abc import Callable
from typing import Any

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.messages import FetchedResponse, ForwardedPart, Visibility
from sidecar.protocols.qdrant.filter import parsed
from sidecar.protocols.shared.document_levels import expect_list, expect_object, to_json
from sidecar.protocols.shared.source_names import SourceNames


def aliases_of(answer: Any) -> dict[str, str]:
    """Alias -> collection, of `GET /aliases`."""
    result = expect_object(
        expect_object(answer, "list of aliases").get("result"), "list of aliases"
    )
    return {
        _text(each, "alias_name"): _text(each, "collection_name")
        for each in expect_list(result.get("aliases"), "list of aliases")
    }


def listed(
    member: str, name: str, naming: SourceNames, sight: Visibility
) -> Callable[[FetchedResponse], ForwardedPart]:
    """Reads a list: of the elements of `result.<member>` those stay whose collection, in the
    element's member `name`, may be seen."""

    def read(answer: FetchedResponse) -> ForwardedPart:
        whole = parsed(answer)
        result = expect_object(whole.get("result"), "result")
        found = expect_list(result.get(member), "list")
        seen = [each for each in found if sight.permits(naming.of(_text(each, name)))]
        if len(seen) == len(found):
            return ForwardedPart(answer.body)
        return ForwardedPart(to_json({**whole, "result": {**result, member: seen}}))

    return read


def _text(element: Any, member: str) -> str:
    value = expect_object(element, "list").get(member)
    if not isinstance(value, str) or not value:
        raise UpstreamFailed(f"the data source's list has an element without `{member}`")
    return value
