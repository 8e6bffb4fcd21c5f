"""Weaviate's own MCP server, at `/v1/mcp`: which collection a tool is called for (data-sources.md
5.4). It keeps no session and asks nothing back, so a request is one JSON-RPC object.

Knows the tools that read or write one collection; what it does not know has no row.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from policies.ground.errors import Malformed
from sidecar.protocols.budget import Budget
from sidecar.protocols.messages import DenialResponse, FetchedResponse, Unresolved
from sidecar.protocols.shared.strict_members import read_members
from sidecar.protocols.weaviate.names import CollectionName, collection, tenant
from sidecar.protocols.weaviate.references import referred

READ, METADATA, WRITE, OPEN = "read", "metadata", "write", "open"

_TOOLS = {
    "weaviate-query-hybrid": READ,
    "search-with-hybrid": READ,
    "weaviate-collections-get-config": METADATA,
    "weaviate-objects-upsert": WRITE,
    "insert-one": WRITE,
}
_OPEN = frozenset(("initialize", "ping", "tools/list", "notifications/initialized"))
_DENIED = -32001


def kind(message: Any) -> str:
    """What a message does; empty where nobody knows."""
    method, params = read_members(message, "method", "params")
    read_members(message, "id", "jsonrpc")
    if method in _OPEN:
        return OPEN
    if method != "tools/call" or not isinstance(params, dict):
        return ""
    name, _ = read_members(params, "name", "arguments")
    return _TOOLS.get(name, "") if isinstance(name, str) else ""


def named(message: Any, budget: Budget) -> Iterator[CollectionName]:
    """The collections that a tool is called for."""
    arguments = message["params"].get("arguments")
    if not isinstance(arguments, dict):
        raise Malformed("`arguments` is not an object")
    name, whose, filters = read_members(arguments, "collection_name", "tenant_name", "filters")
    if name is None:
        raise Unresolved("without `collection_name`, the tool concerns every collection")
    found = CollectionName(collection(name), tenant(whose))
    yield found
    for each in referred(filters, budget):
        yield CollectionName(each)
        yield CollectionName(each, found.tenant)


def refusal(message: Any, refused: DenialResponse) -> FetchedResponse | None:
    """A denial as an error that an agent's framework can show to its model; None where there is no
    request to answer."""
    if not isinstance(message, dict) or not isinstance(message.get("id"), (str, int)):
        return None
    error = {"code": _DENIED, "message": refused.message, "data": refused.decision}
    body = {"jsonrpc": "2.0", "id": message["id"], "error": error}
    return FetchedResponse(200, "OK", [(b"Content-Type", b"application/json")], orjson.dumps(body))
