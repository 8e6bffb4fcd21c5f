"""Finds the collection that a tool of Weaviate's own MCP server, at `/v1/mcp`, is called for
(`protocols/RULES.md`, Weaviate). The server keeps no session and sends no requests of its own, so a
request is one JSON-RPC object.

Knows the tools that read or write one collection. Other tools have no route.
"""

from collections.abc import Iterator
from typing import Any

from policies.ground.errors import Malformed
from sidecar.protocols.budget import Budget
from sidecar.protocols.mcp.errors import refused
from sidecar.protocols.messages import FetchedResponse, RefusalResponse, Unresolved
from sidecar.protocols.route_table import RouteClass
from sidecar.protocols.shared.strict_members import read_members
from sidecar.protocols.weaviate.names import CollectionName, parse_collection, parse_tenant
from sidecar.protocols.weaviate.references import references_in

_TOOLS = {
    "weaviate-query-hybrid": RouteClass.RETRIEVE,
    "search-with-hybrid": RouteClass.RETRIEVE,
    "weaviate-collections-get-config": RouteClass.METADATA,
    "weaviate-objects-upsert": RouteClass.WRITE,
    "insert-one": RouteClass.WRITE,
}
# Methods that concern no collection.
_OPEN = frozenset(("initialize", "ping", "tools/list", "notifications/initialized"))


def classify(message: Any) -> RouteClass | None:
    """The class of what a message does; None if that is unknown."""
    method, params = read_members(message, "method", "params")
    # Called only because it refuses other spellings of these names.
    read_members(message, "id", "jsonrpc")
    if method in _OPEN:
        return RouteClass.OPEN
    # Any other method, and any other tool, has no row and is denied.
    if method != "tools/call" or not isinstance(params, dict):
        return None
    name, _ = read_members(params, "name", "arguments")
    return _TOOLS.get(name) if isinstance(name, str) else None


def collections(message: Any, budget: Budget) -> Iterator[CollectionName]:
    """The collections that a tool call concerns: its own, and those its filters refer to."""
    arguments = message["params"].get("arguments")
    if not isinstance(arguments, dict):
        raise Malformed("`arguments` must be an object")
    name, tenant, filters = read_members(arguments, "collection_name", "tenant_name", "filters")
    if name is None:
        raise Unresolved("without `collection_name`, the tool reads every collection")
    target = CollectionName(parse_collection(name), parse_tenant(tenant))
    yield target
    for each in references_in(filters, budget):
        # The other collection may have the same tenants, or none: both are judged.
        yield CollectionName(each)
        yield CollectionName(each, target.tenant)


def render_refusal(message: Any, refusal: RefusalResponse) -> FetchedResponse | None:
    """A JSON-RPC error, as of any MCP server; None for a notification, which has no response."""
    # The message is None if the request was denied before its body was read.
    if not isinstance(message, dict) or not isinstance(message.get("id"), (str, int)):
        return None
    return refused(refusal, message)
