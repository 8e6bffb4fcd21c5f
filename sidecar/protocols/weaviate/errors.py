"""Renders refusals as Weaviate's errors: a list of messages, under the names that REST and GraphQL
clients read."""

from typing import Any

from sidecar.protocols.messages import FetchedResponse, RefusalResponse, RoutedRequest
from sidecar.protocols.shared.error_bodies import error_response
from sidecar.protocols.weaviate import mcp

_GRAPHQL = ("v1", "graphql")
_MCP = ("v1", "mcp")


def render_refusal(request: RoutedRequest | None, refusal: RefusalResponse) -> FetchedResponse:
    segments = () if request is None else request.target.segments
    if request is not None and segments == _MCP:
        rendered = mcp.render_refusal(request.body, refusal)
        if rendered is not None:
            return rendered
    messages = [{"message": refusal.message}]
    own: dict[str, Any] = {"error": messages}
    # Weaviate itself answers a batch that it refuses as a whole with the REST form alone.
    if segments == _GRAPHQL:
        own = {"data": None, "errors": messages, **own}
    return error_response(refusal, own)
