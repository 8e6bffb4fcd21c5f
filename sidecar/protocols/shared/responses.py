"""Reads the JSON of a data source's responses, filters documents by their own level
(`sensitivity_field`), encodes the JSON again, and renders refusals as JSON errors."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from policies.definitions.model import SENSITIVITIES, Sensitivity
from policies.ground.errors import UpstreamFailed
from sidecar.protocols.protocol import FetchedResponse, Fields, RefusalResponse, Visibility

DEFAULT_LEVEL: Sensitivity = "critical"
"""The level of a document that states no level, or an unknown one: the highest, to be on the safe
side."""

_JSON = (b"Content-Type", b"application/json")


def response_json(response: FetchedResponse) -> Any:
    """Return the JSON value in a response. Raises `UpstreamFailed` if it is not JSON."""
    try:
        return orjson.loads(response.body)
    except orjson.JSONDecodeError as error:
        # A response that can't be checked doesn't reach the agent.
        raise UpstreamFailed("the data source's response is not JSON") from error


def response_object(response: FetchedResponse) -> dict[str, Any]:
    """Return the JSON object in a response. Raises `UpstreamFailed` if it is anything else."""
    return expect_object(response_json(response), "response")


def to_json(value: Any) -> bytes:
    """Return `value` as JSON. Raises `UpstreamFailed` if it is nested deeper than orjson can
    write."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        # orjson reads 1,024 levels but writes only 254.
        raise UpstreamFailed("the data source's response is nested too deeply") from error


def expect_object(value: Any, what: str) -> dict[str, Any]:
    """Return `value` if it is a JSON object. Raises `UpstreamFailed` otherwise."""
    if not isinstance(value, dict):
        raise UpstreamFailed(f"the data source's {what} is not a JSON object")
    return value


def expect_list(value: Any, what: str) -> list[Any]:
    """Return `value` if it is a JSON array. Raises `UpstreamFailed` otherwise."""
    if not isinstance(value, list):
        raise UpstreamFailed(f"the data source's {what} is not a JSON array")
    return value


def expect_text(element: Any, member: str) -> str:
    """Return the member of `element`, an object in a list, that must be a non-empty string. Raises
    `UpstreamFailed` otherwise."""
    value = expect_object(element, "list").get(member)
    if not isinstance(value, str) or not value:
        raise UpstreamFailed(f"the data source's list has an element without `{member}`")
    return value


class DocumentLevels(NamedTuple):
    path: tuple[str, ...]
    levels: tuple[Sensitivity, ...]

    @property
    def filterable(self) -> bool:
        """True if the condition "level is one of `levels`" matches every visible document. False if
        the agent may see documents without a level."""
        return DEFAULT_LEVEL not in self.levels

    def may_see(self, metadata: Any) -> bool:
        for name in self.path:
            metadata = metadata.get(name) if isinstance(metadata, dict) else None
        # Only a plain string counts: a list of levels doesn't say which of them applies.
        known = isinstance(metadata, str) and metadata in SENSITIVITIES
        return (metadata if known else DEFAULT_LEVEL) in self.levels


def levels_of(visibility: Visibility, *, flat: bool = False) -> DocumentLevels | None:
    """Return the levels that the agent may see, and the path to a document's level; None if it may
    see every document. In `flat` metadata a dot is part of a name."""
    if visibility.levels is None:
        return None
    path = (visibility.field,) if flat else tuple(visibility.field.split("."))
    return DocumentLevels(path, visibility.levels)


def error_response(
    refusal: RefusalResponse, own: Mapping[str, Any], *fields: tuple[bytes, bytes]
) -> FetchedResponse:
    """Return a JSON response with the status of the refusal. `own` are the members that the data
    source's clients read; `fields` are additional header fields. The usual members `message`,
    `code` and `decision` are added, except where `own` uses that name."""
    # The client's own members come first: some clients show only the beginning of a body.
    body = {**own, "message": refusal.message, "code": refusal.status, **own}
    if refusal.decision:
        body["decision"] = refusal.decision
    sent: Fields = [_JSON, *fields]
    return FetchedResponse(refusal.status, "", sent, orjson.dumps(body))
