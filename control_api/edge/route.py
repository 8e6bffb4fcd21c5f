"""Defines a route and the scopes that it accepts, and parses a request's path, query, headers and
body into the type that the route's operation takes."""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, get_args, get_origin
from urllib.parse import parse_qsl, unquote_to_bytes

from control_api.edge.answers import Document, Page, PagedPart, Redirect, Stream
from control_api.edge.requests import (
    RequestModel,
    UndecodedRequest,
    json_integer,
    put_back,
    shown_members,
)
from policies.ground.canonical import is_json, parse_object
from policies.ground.errors import Invalid, Malformed, invalid


class Scope(StrEnum):
    """The kind of access that an API key grants (`CONTRACT.md`, Scopes). A closed set, because it
    is a metric's label."""

    evaluate = "evaluate"
    read = "read"
    admin = "admin"
    sidecar = "sidecar"
    superadmin = "superadmin"


# INVARIANT: an admin may do everything in its tenant (`CONTRACT.md`, Scopes), so every tenant route
# that needs a key accepts `admin`. The superadmin belongs to no tenant and has its own routes.
EVALUATE = frozenset({Scope.evaluate, Scope.admin})
READ = frozenset({Scope.read, Scope.admin})
ADMIN = frozenset({Scope.admin})
SIDECAR = frozenset({Scope.sidecar, Scope.admin})
SUPERADMIN = frozenset({Scope.superadmin})
# Who may sign in to the console.
PEOPLE = READ | SUPERADMIN
OPEN = None


MAX_QUERY_FIELDS = 64


class ApiCall(NamedTuple):
    """The parts of an HTTP request that a route parses. `path` holds the decoded path parameters;
    `query` is still encoded; `body` is empty if the request had none."""

    path: dict[str, str]
    query: str
    content_type: str | None
    body: bytes
    headers: Mapping[str, str]


def path_segments(path: str) -> list[str]:
    """Split a path into its segments, and percent-decode each of them once: a `%2F` stays inside
    its segment.

    `path` is as received, with bytes outside ASCII as surrogate escapes. Raise `Malformed` if it
    does not begin with `/` or is not UTF-8 when decoded.
    """
    if not path.startswith("/"):
        raise Malformed("the request target is not a path: it must begin with `/`")
    try:
        # Split first: decoding first would turn `%2F` inside an id into a separator.
        return [
            unquote_to_bytes(part).decode() if "%" in part else part for part in path[1:].split("/")
        ]
    except UnicodeError:
        raise Malformed("the path is not UTF-8 after percent-decoding") from None


def query_fields(query: str) -> dict[str, str]:
    """Parse the fields of a query, by name. Raise `Invalid` if a name occurs twice, and `Malformed`
    if the query can't be parsed."""
    if not query:
        return {}
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_FIELDS
        )
    except UnicodeDecodeError:
        raise Malformed("the query is not UTF-8 after percent-decoding") from None
    except ValueError as error:
        raise Malformed(f"the query can't be parsed: {error}".lower()) from None
    fields: dict[str, str] = {}
    duplicates: list[str] = []
    for name, value in pairs:
        if name in fields:
            # A gateway in front of the service might check one of the two, and we use the other.
            duplicates.append(f"{name[:64]}: is given twice")
        fields[name] = value
    if duplicates:
        raise invalid(duplicates, "query")
    return fields


Operation = Callable[..., Awaitable[object]]
"""The function that carries out a request: `async (bundle, caller, request) -> response`."""

MAX_BODY = 1024 * 1024
"""The most bytes in a request's body, on most routes. Few requests are served at a time on the
routes that take larger bodies (`control_api.edge.request_shell`)."""
_PARAMETER = re.compile(r"\{([a-z_]+)\}\Z")
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


@dataclass(frozen=True, slots=True)
class Route:
    """One operation of the API: everything that HTTP needs, together with the operation itself.

    `scopes` is None if no key is needed. `errors` are the error statuses beyond those that follow
    from the other fields. `content_type` is the media type of the response, and a field of the
    request may ask for one of `other_content_types` instead. `max_body` is in bytes. `of_log` means
    that the response depends on index columns or counts of the log, so its headers say when these
    were verified.

    `falls_through` means that the last segment of the path may also be an identifier chosen by a
    caller. If the path has no route for the request's method, the method is looked up on the path
    that has a parameter in place of that segment.
    """

    method: str
    path: str
    scopes: frozenset[Scope] | None
    operation: Operation
    status: int = 200
    errors: tuple[int, ...] = ()
    content_type: str = "application/json"
    falls_through: bool = False
    max_body: int = MAX_BODY
    other_content_types: tuple[str, ...] = ()
    of_log: bool = False

    @property
    def request_type(self) -> type[RequestModel]:
        """The request model: the type of the operation's third parameter. If the request is parsed
        into another type, the model is given as that type's annotation."""
        # INVARIANT: an operation takes `(bundle, caller, request)`. Its signature alone declares
        # the types.
        request = list(_signature(self.operation).parameters.values())[2].annotation
        annotated = get_origin(request) is Annotated
        found: type[RequestModel] = get_args(request)[1] if annotated else request
        return found

    @property
    def response_type(self) -> Any:
        """The type of the response, or None if it is not one of our JSON types. For a page it is a
        list. An operation that returns JSON only on request returns that type or a `Document`; this
        is the former of the two."""
        response = _signature(self.operation).return_annotation
        if get_origin(response) is Page:
            return list[get_args(response)[0]]  # type: ignore[misc]  # a type made of a type
        if get_origin(response) is PagedPart:
            return get_args(response)[0]
        if isinstance(response, UnionType) and Document in get_args(response):
            return next(each for each in get_args(response) if each is not Document)
        return None if response in (Document, Redirect, Stream) else response

    @property
    def paged(self) -> bool:
        """True if the response is a page of a list, or contains one."""
        return get_origin(_signature(self.operation).return_annotation) in (Page, PagedPart)

    @property
    def name(self) -> str:
        return getattr(self.operation, "__name__", "unnamed")

    @property
    def summary(self) -> str:
        """The first paragraph of the operation's docstring."""
        return (inspect.getdoc(self.operation) or "").partition("\n\n")[0].replace("\n", " ")

    @property
    def details(self) -> str:
        """The operation's docstring without its first paragraph."""
        return (inspect.getdoc(self.operation) or "").partition("\n\n")[2]

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.path[1:].split("/"))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the path's parameters, which stand between braces."""
        return tuple(found[1] for part in self.parts if (found := _PARAMETER.match(part)))

    @property
    def query(self) -> tuple[str, ...]:
        """The names of the query's fields. On a route without a body, these are all fields except
        those of path and headers."""
        elsewhere = {*self.parameters, *self.request_type.in_header}
        names = (name for name in field_names(self.request_type) if name not in elsewhere)
        if self.has_body:
            return tuple(name for name in names if name in self.request_type.in_query)
        return tuple(names)

    @property
    def body(self) -> tuple[str, ...]:
        if not self.has_body:
            return ()
        elsewhere = {*self.parameters, *self.request_type.in_query, *self.request_type.in_header}
        return tuple(name for name in field_names(self.request_type) if name not in elsewhere)

    @property
    def put_back(self) -> tuple[str, ...]:
        """The members that a body may hold because a `GET` shows them, although the request is not
        read from them. Those that are also in the path must have the same value; others are
        ignored."""
        return tuple(sorted(shown_members(self.request_type).difference(self.body)))

    @property
    def returns_revision(self) -> bool:
        """True if the response has a header with the tenant's revision, as the response to every
        management write has."""
        # Derived from the scopes, so that no new write can forget it: what only an admin may write
        # changes what decisions are based on, or how long records are kept.
        return self.method != "GET" and self.scopes in (ADMIN, SUPERADMIN)

    @property
    def has_body(self) -> bool:
        return self.method in _WITH_BODY


# Evaluating annotations is slow, and almost every property above asks for it.
@cache
def _signature(operation: Operation) -> inspect.Signature:
    return inspect.signature(operation, eval_str=True)


def bundle_type(operation: Operation) -> type[object]:
    """Return the type of the operation's first parameter, the bundle of objects that it works
    with."""
    found: type[object] = next(iter(_signature(operation).parameters.values())).annotation
    return found


def field_names(request_type: type[RequestModel]) -> list[str]:
    """Return the request fields' names as they are sent. A field named `from`, which is a Python
    keyword, is sent under its alias."""
    return [field.alias or name for name, field in request_type.model_fields.items()]


class RequestParser:
    """Parses an `ApiCall` into the request type of a route. It is built once per route."""

    def __init__(self, route: Route) -> None:
        self.has_body = route.has_body
        self._request_type = route.request_type
        self._query = frozenset(route.query)
        self._body = frozenset(route.body)
        self._headers = route.request_type.in_header
        self._has_fast_path = "from_known_bytes" in vars(route.request_type)
        self._decoded_later = route.request_type.decoded_later
        self._ignores_unknown = route.request_type.model_config.get("extra") == "ignore"

    def __call__(self, call: ApiCall) -> Any:
        """Return the parsed request. Raise `Malformed` if the call can't be parsed, and `Invalid`
        if a field is wrong."""
        if self._decoded_later:
            return self._undecoded(call)
        # A spool's batch in the one form that our sidecars write is read without a full decode.
        if self._has_fast_path and not call.query and not call.path and is_json(call.content_type):
            known = self._request_type.from_known_bytes(call.body)
            if known is not None:
                return known
        if self._ignores_unknown and not call.query and not call.path:
            # Every evaluation and report takes this path: unknown fields need no check. A field of
            # the query must not be settable in the body, so its name is dropped there.
            body = self._object(call)
            for name in self._query:
                body.pop(name, None)
            return self._request_type.read(body)
        query = query_fields(call.query)
        body, complaints = put_back(self._request_type, self._object(call), call.path)
        unknown = [*complaints, *self._unknown(query, body)]
        values = {name: json_integer(body[name]) for name in self._body & body.keys()}
        values.update((name, query[name]) for name in self._query & query.keys())
        values.update(
            (field, call.headers[name])
            for field, name in self._headers.items()
            if name in call.headers
        )
        values.update(call.path)
        try:
            request = self._request_type.read(values)
        except Invalid as refusal:
            # All complaints at once: unknown fields together with the invalid ones.
            raise invalid([*unknown, *(refusal.details or "").splitlines()], "request") from None
        if unknown:
            raise invalid(unknown, "request")
        return request

    def _undecoded(self, call: ApiCall) -> UndecodedRequest:
        query = query_fields(call.query)
        if unknown := self._unknown(query, {}):
            raise invalid(unknown, "request")
        if not is_json(call.content_type):
            raise Malformed(f"content type `{call.content_type}` is not JSON")
        return UndecodedRequest({**query, **call.path}, call.body)

    def _unknown(self, query: dict[str, Any], body: dict[str, Any]) -> list[str]:
        if self._ignores_unknown:
            return []
        names = [name for name in query if name not in self._query]
        names += [name for name in body if name not in self._body]
        # Cut short, because the name comes from the caller and may be as long as the body.
        return [f"{name[:64]}: is not a known field" for name in names]

    def _object(self, call: ApiCall) -> dict[str, Any]:
        # A POST that has no fields may come without a body.
        if not self.has_body or not (call.body or self._body):
            return {}
        return parse_object(call.body, call.content_type, unique=self._request_type.unique_keys)
