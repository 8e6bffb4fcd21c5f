"""Filters the responses of Qdrant's gRPC interface: points by their own level, by the rules of
`filter.py`, and lists by what the agent may see."""

from collections.abc import Callable
from typing import Any, NamedTuple

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.grpc.protobuf import Message, Schema, Values
from sidecar.protocols.protocol import FetchedResponse, ForwardedPart, RoutedRequest, Visibility
from sidecar.protocols.qdrant.filter import FilteredRequest, Payload, PayloadFilter, RequestForm
from sidecar.protocols.qdrant.grpc_sources import requests_of_call
from sidecar.protocols.qdrant.sources import Request, visible_elements
from sidecar.protocols.shared.responses import DocumentLevels
from sidecar.protocols.shared.source_names import SourceNames

# Search, recommend, discover and query respond in the same three forms: `Points`, `Batch` and
# `Groups`. Only the part of a payload that holds the level is decoded, as a `Value`.
RESPONSES = Schema("""
Records
    1 result Record*; 2 time double; 3 usage raw
Page
    1 next_page_offset raw; 2 result Record*; 3 time double; 4 usage raw
Points
    1 result Point*; 2 time double; 3 usage raw
Batch
    1 result BatchResult*; 2 time double; 3 usage raw
Groups
    1 result GroupsResult; 2 time double; 3 usage raw
Record
    1 id raw; 2 payload map<string, raw>; 4 vectors raw; 5 shard_key raw; 6 order_value raw
Point
    1 id raw; 2 payload map<string, raw>; 3 score float; 5 version uint64; 6 vectors raw
    7 shard_key raw; 8 order_value raw
BatchResult
    1 result Point*
GroupsResult
    1 groups Group*
Group
    1 id raw; 2 hits Point*; 3 lookup Record
Collections
    1 collections Collection*; 2 time double
Collection
    1 name string
Aliases
    1 aliases Alias*; 2 time double
Alias
    1 alias_name string; 2 collection_name string
Value
    oneof kind
        1 null_value enum; 2 double_value double; 3 integer_value int64; 4 string_value string
        5 bool_value bool; 6 struct_value Struct; 7 list_value List
Struct
    1 fields map<string, Value>
List
    1 values Value*
""")
"""The messages of responses that are filtered."""

_VALUE = RESPONSES["Value"]


class Grpc(NamedTuple):
    """The `Wire` of one method of the gRPC interface."""

    message: Message
    response: Message
    batch: str = ""
    """The field that holds the requests of a batch; empty if the message is a single request."""

    def requests(self, request: RoutedRequest) -> list[Request]:
        return requests_of_call(request, self.batch)

    def condition(self, levels: DocumentLevels) -> Request:
        match = {"keywords": {"strings": list(levels.levels)}}
        return {"field": {"key": ".".join(levels.path), "match": match}}

    def read_selector(self, value: Any) -> Any:
        if value is None:
            return None
        if "enable" in value:
            return value["enable"]
        [(kind, selected)] = value.items()
        return {kind: selected.get("fields", [])}

    def write_selector(self, value: Any) -> Any:
        if isinstance(value, bool):
            return {"enable": value}
        if isinstance(value, list):
            value = {"include": value}
        [(kind, names)] = value.items()
        return {kind: {"fields": names}}

    def write_request(self, request: RoutedRequest, bodies: list[Request]) -> bytes:
        values = {**request.body.values, self.batch: bodies} if self.batch else bodies[0]
        return self.message.encode(values)

    def payload_filter(self, levels: DocumentLevels) -> PayloadFilter:
        return _PayloadFilter(levels)

    def read_response(self, response: FetchedResponse) -> tuple[Request, list[Any]]:
        whole = _decoded(self.response, response.body)
        if not self.batch:
            return whole, [whole.get("result", [])]
        return whole, [each.get("result", []) for each in whole.get("result", [])]

    def write_response(self, whole: Request, visible: list[Any]) -> bytes:
        result = [{"result": each} for each in visible] if self.batch else visible[0]
        return self.response.encode({**whole, "result": result})


class _PayloadFilter(PayloadFilter):
    """Filters points whose payload is a map of encoded values."""

    def _admit(self, point: dict[str, Any], payload: Payload) -> bool:
        name = self._levels.path[0]
        found = point.get("payload", {})
        # The level, and the paths to remove again, are all within this member.
        if name in found:
            found[name] = _plain(_decoded(_VALUE, found[name]))
        admitted = super()._admit(point, payload)
        if admitted and name in found:
            found[name] = _VALUE.encode(_value(found[name]))
        return admitted


def _groups(payload_filter: PayloadFilter, result: Any, request: FilteredRequest) -> dict[str, Any]:
    # A list without elements is absent.
    groups = (result or {}).get("groups", [])
    whole = {"groups": [{"hits": [], **group} for group in groups]}
    return payload_filter.groups(whole, request)


POINTS = RequestForm(PayloadFilter.points)
GROUPS = RequestForm(_groups)
SCROLL = RequestForm(PayloadFilter.points, payload_by_default=True)
RECORDS = RequestForm(PayloadFilter.points, has_filter=False)
"""The forms of `filter.py` as gRPC has them. Other than over HTTP, points that are requested by id
have no payload unless the request asks for it."""


def call_list_filter(
    message: Message, member: str, name: str, source_names: SourceNames, visibility: Visibility
) -> Callable[[FetchedResponse], ForwardedPart]:
    """Return a function that filters the list in the field `member` of a response by the collection
    that each element names in its field `name`."""

    def filter_list(response: FetchedResponse) -> ForwardedPart:
        whole = _decoded(message, response.body)
        elements = whole.get(member, [])
        visible = visible_elements(elements, name, source_names, visibility)
        # If nothing is hidden, the agent gets Qdrant's own bytes.
        if len(visible) == len(elements):
            return ForwardedPart(response.body)
        return ForwardedPart(message.encode({**whole, member: visible}))

    return filter_list


def _decoded(message: Message, data: bytes) -> Values:
    try:
        return message.decode(data).values
    except Malformed as error:
        # A response that can't be checked doesn't reach the agent.
        raise UpstreamFailed(f"the data source's message can't be read: {error.message}") from error


def _plain(value: Values) -> Any:
    """Return a `Value` as JSON would have it."""
    if "struct_value" in value:
        fields = value["struct_value"].get("fields", {})
        return {name: _plain(each) for name, each in fields.items()}
    if "list_value" in value:
        return [_plain(each) for each in value["list_value"].get("values", [])]
    # Every other kind holds the value itself, except for null, whose number says nothing.
    return next((each for kind, each in value.items() if kind != "null_value"), None)


def _value(plain: Any) -> Values:
    """Return the opposite of `_plain`."""
    if isinstance(plain, dict):
        fields = {name: _value(each) for name, each in plain.items()}
        return {"struct_value": {"fields": fields}}
    if isinstance(plain, list):
        return {"list_value": {"values": [_value(each) for each in plain]}}
    return {_KINDS[type(plain)]: 0 if plain is None else plain}


_KINDS = {
    bool: "bool_value",
    float: "double_value",
    int: "integer_value",
    str: "string_value",
    type(None): "null_value",
}
