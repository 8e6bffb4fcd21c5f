"""Reads and writes Pinecone's requests and responses: as JSON in REST, as messages in gRPC. A
message is read as the JSON that says the same, so that the rules for REST are the rules for
both."""

from typing import Any, NamedTuple, Protocol

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.grpc.protobuf import Message, Values
from sidecar.protocols.pinecone.grpc_schema import RESPONSES
from sidecar.protocols.protocol import FetchedResponse
from sidecar.protocols.shared.responses import DocumentLevels, response_object, to_json

Body = dict[str, Any]

_STRUCT, _VALUE = RESPONSES["Struct"], RESPONSES["Value"]


class Wire(Protocol):
    def read_request(self, body: Any) -> Body:
        """Return the body of a request as JSON, with the names that REST uses. Raises
        `Malformed`."""

    def write_request(self, body: Body) -> bytes:
        """Return the opposite of `read_request`."""

    def read_response(self, response: FetchedResponse) -> Body:
        """Return a response in the same form, but for what `read_metadata` reads. Raises
        `UpstreamFailed`."""

    def write_response(self, whole: Body) -> bytes:
        """Return the opposite of `read_response`."""

    def read_metadata(self, metadata: Any, levels: DocumentLevels) -> Any:
        """Return a record's metadata, at least as far as they state its level. Raises
        `UpstreamFailed`."""


class Rest:
    """The `Wire` of REST."""

    def read_request(self, body: Any) -> Body:
        whole: Body = body
        return whole

    def write_request(self, body: Body) -> bytes:
        return orjson.dumps(body)

    def read_response(self, response: FetchedResponse) -> Body:
        return response_object(response)

    def write_response(self, whole: Body) -> bytes:
        return to_json(whole)

    def read_metadata(self, metadata: Any, _levels: DocumentLevels) -> Any:
        return metadata


REST = Rest()


class Grpc(NamedTuple):
    """The `Wire` of one method of gRPC."""

    request: Message
    response: Message | None = None
    """None if its response is not read."""

    def read_request(self, body: Any) -> Body:
        values: Body = body.values
        given = values.get("filter")
        return values if given is None else {**values, "filter": _object(given)}

    def write_request(self, body: Body) -> bytes:
        given = body.get("filter")
        return self.request.encode(body if given is None else {**body, "filter": _struct(given)})

    def read_response(self, response: FetchedResponse) -> Body:
        assert self.response is not None
        return _decoded(self.response, response.body)

    def write_response(self, whole: Body) -> bytes:
        assert self.response is not None
        return self.response.encode(whole)

    def read_metadata(self, metadata: Any, levels: DocumentLevels) -> Any:
        if metadata is None:
            return None
        outermost = levels.path[0]
        found = _decoded(_STRUCT, metadata).get("fields", {}).get(outermost)
        if found is None:
            return {}
        try:
            return {outermost: _json(_decoded(_VALUE, found))}
        except Malformed as error:
            raise _unreadable(error) from None


def _decoded(message: Message, data: bytes) -> Values:
    try:
        return message.decode(data).values
    except Malformed as error:
        raise _unreadable(error) from None


def _unreadable(error: Malformed) -> UpstreamFailed:
    return UpstreamFailed(f"the data source's response can't be read: {error.message}")


def _object(struct: Values) -> Body:
    return {name: _json(each) for name, each in struct.get("fields", {}).items()}


def _json(value: Values) -> Any:
    """Return a `google.protobuf.Value` as JSON."""
    for kind, held in value.items():
        if kind == "struct_value":
            return _object(held)
        if kind == "list_value":
            return [_json(each) for each in held.get("values", ())]
        return None if kind == "null_value" else held
    # It has no JSON, and servers differ in what they take it for.
    raise Malformed("a `Value` has no kind")


def _struct(given: Body) -> Values:
    return {"fields": {name: _value(each) for name, each in given.items()}}


def _value(given: Any) -> Values:
    if given is None:
        return {"null_value": 0}
    if isinstance(given, bool):  # before the numbers: a bool is one to Python
        return {"bool_value": given}
    if isinstance(given, str):
        return {"string_value": given}
    if isinstance(given, dict):
        return {"struct_value": _struct(given)}
    if isinstance(given, list):
        return {"list_value": {"values": [_value(each) for each in given]}}
    return {"number_value": float(given)}
