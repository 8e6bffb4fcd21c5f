"""Reads the JSON of a data source's responses, and encodes it again after filtering. Pure. Knows no
protocol."""

from typing import Any

import orjson

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.messages import FetchedResponse


def response_json(response: FetchedResponse) -> Any:
    """The JSON of a response. Raises `UpstreamFailed`."""
    try:
        return orjson.loads(response.body)
    except orjson.JSONDecodeError as error:
        # A response that can't be checked doesn't reach the agent.
        raise UpstreamFailed("the data source's response is not JSON") from error


def response_object(response: FetchedResponse) -> dict[str, Any]:
    """The JSON object of a response. Raises `UpstreamFailed`."""
    return expect_object(response_json(response), "response")


def to_json(value: Any) -> bytes:
    """`value` as JSON. Raises `UpstreamFailed` if it is nested deeper than orjson can write."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        # orjson reads 1,024 levels but writes only 254.
        raise UpstreamFailed("the data source's response is nested too deeply") from error


def expect_object(value: Any, what: str) -> dict[str, Any]:
    """`value` if it is a JSON object. Raises `UpstreamFailed` otherwise."""
    if not isinstance(value, dict):
        raise UpstreamFailed(f"the data source's {what} is not a JSON object")
    return value


def expect_list(value: Any, what: str) -> list[Any]:
    """`value` if it is a JSON array. Raises `UpstreamFailed` otherwise."""
    if not isinstance(value, list):
        raise UpstreamFailed(f"the data source's {what} is not a JSON array")
    return value


def expect_text(element: Any, member: str) -> str:
    """A member of a list's element that must be a non-empty string. Raises `UpstreamFailed`
    otherwise."""
    value = expect_object(element, "list").get(member)
    if not isinstance(value, str) or not value:
        raise UpstreamFailed(f"the data source's list has an element without `{member}`")
    return value
