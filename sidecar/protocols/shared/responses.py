"""Reads the JSON of a data source's responses and encodes it again after filtering, tells whether
the agent may see a document by the document's own level (`sensitivity_field`), and writes refusals
as JSON errors, with what Sluice says beside them. Pure. Knows no protocol.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from policies.definitions.model import SENSITIVITIES, Sensitivity
from policies.ground.errors import UpstreamFailed
from sidecar.protocols.protocol import FetchedResponse, Fields, RefusalResponse, Visibility


def response_json(response: FetchedResponse) -> Any:
    """Return the JSON of a response. Raises `UpstreamFailed`."""
    try:
        return orjson.loads(response.body)
    except orjson.JSONDecodeError as error:
        # A response that can't be checked doesn't reach the agent.
        raise UpstreamFailed("the data source's response is not JSON") from error


def response_object(response: FetchedResponse) -> dict[str, Any]:
    """Return the JSON object of a response. Raises `UpstreamFailed`."""
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
    """Return a member of a list's element that must be a non-empty string. Raises `UpstreamFailed`
    otherwise."""
    value = expect_object(element, "list").get(member)
    if not isinstance(value, str) or not value:
        raise UpstreamFailed(f"the data source's list has an element without `{member}`")
    return value


DEFAULT_LEVEL: Sensitivity = "critical"
"""The level of a document that has none, or an unknown one: the highest, to be on the safe side."""


class DocumentLevels(NamedTuple):
    """The path to the level in a document's metadata, and the levels that the agent may see."""

    path: tuple[str, ...]
    levels: tuple[Sensitivity, ...]

    @property
    def filterable(self) -> bool:
        """True if the condition "level is one of `levels`" matches every visible document. False if
        the agent may see documents without a level."""
        return not self.may_see_default

    def may_see(self, metadata: Any) -> bool:
        """Return whether the agent may see the document with this metadata."""
        for name in self.path:
            if not isinstance(metadata, dict):
                return self.may_see_default
            metadata = metadata.get(name)
        # Only a plain string counts: a list of levels doesn't say which of them applies.
        if isinstance(metadata, str) and metadata in SENSITIVITIES:
            return metadata in self.levels
        return self.may_see_default

    @property
    def may_see_default(self) -> bool:
        return DEFAULT_LEVEL in self.levels


def levels_of(visibility: Visibility, *, flat: bool = False) -> DocumentLevels | None:
    """Return the levels that the agent may see, and the path to a document's level; None if it may
    see every document. In `flat` metadata a dot is part of a name."""
    if visibility.levels is None:
        return None
    path = (visibility.field,) if flat else tuple(visibility.field.split("."))
    return DocumentLevels(path, visibility.levels)


_JSON = (b"Content-Type", b"application/json")


def error_response(
    refusal: RefusalResponse, own: Mapping[str, Any], *fields: tuple[bytes, bytes]
) -> FetchedResponse:
    """Return a JSON response of the refusal's status. `own` are the members that the data source's
    clients read; `fields` are more header fields. `message`, `code` and `decision` stand beside
    them, each unless `own` uses that name."""
    # The client's own members come first: some clients show only the beginning of a body.
    body: dict[str, Any] = {**own}
    body.setdefault("message", refusal.message)
    body.setdefault("code", refusal.status)
    if refusal.decision:
        body["decision"] = refusal.decision
    sent: Fields = [_JSON, *fields]
    return FetchedResponse(refusal.status, "", sent, orjson.dumps(body))
