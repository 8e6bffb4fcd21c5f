"""Writes a refusal as the JSON error of a data source, with what Sluice says beside it."""

from collections.abc import Mapping
from typing import Any

import orjson

from sidecar.protocols.messages import FetchedResponse, Fields, RefusalResponse

_JSON = (b"Content-Type", b"application/json")


def error_response(
    refusal: RefusalResponse, own: Mapping[str, Any], *fields: tuple[bytes, bytes]
) -> FetchedResponse:
    """A JSON response of the refusal's status. `own` are the members that the data source's clients
    read; `fields` are more header fields. `message`, `code` and `decision` stand beside them, each
    unless `own` uses that name."""
    # The client's own members come first: some clients show only the beginning of a body.
    body: dict[str, Any] = {**own}
    body.setdefault("message", refusal.message)
    body.setdefault("code", refusal.status)
    if refusal.decision:
        body["decision"] = refusal.decision
    sent: Fields = [_JSON, *fields]
    return FetchedResponse(refusal.status, "", sent, orjson.dumps(body))
