"""What a route is, and how a request becomes what it asks. Knows no route in particular."""

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from control_api.http.call import ApiCall, query_fields
from control_api.requests.base import RequestModel
from control_api.responses.audit import Document, Redirect
from control_api.responses.paging import Page, Part
from policies.ground.errors import Invalid, invalid
from policies.ground.json_body import is_json, parse_object

UseCase = Callable[..., Awaitable[object]]
"""`async (service, caller, asked) -> answer`."""

_PARAMETER = re.compile(r"\{([a-z_]+)\}\Z")
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class Scope(StrEnum):
    """What a key may be (contract, section 2). A closed set: it is a metric's label."""

    evaluate = "evaluate"
    read = "read"
    admin = "admin"
    sidecar = "sidecar"
    superadmin = "superadmin"


_OF_ADMIN = frozenset({Scope.admin})
_OF_SUPERADMIN = frozenset({Scope.superadmin})


@dataclass(frozen=True, slots=True)
class Route:
    """One operation. Everything about it that HTTP must know is here and in the use case's
    signature, and nowhere else.

    `scopes` None needs no key. `errors` are the statuses beyond those that follow from the rest;
    `media` is the type of an answer that is no JSON of ours. `shares` says that the path's last
    segment may also be an object's name, chosen by callers: the methods that this path lacks are
    then those of the path with a parameter in that place.
    """

    method: str
    path: str
    scopes: frozenset[Scope] | None
    use_case: UseCase
    status: int = 200
    errors: tuple[int, ...] = ()
    media: str = "application/json"
    shares: bool = False

    @property
    def asks(self) -> type[RequestModel]:
        """The declaration of what is asked: the use case's third parameter, or what that is
        annotated with where it is read by other means."""
        asked = list(_signature(self.use_case).parameters.values())[2].annotation
        found: type[RequestModel] = get_args(asked)[1] if get_origin(asked) is Annotated else asked
        return found

    @property
    def answers(self) -> Any:
        """The type that is answered, a page as a list; None where it is no JSON of ours."""
        answer = _signature(self.use_case).return_annotation
        if get_origin(answer) is Page:
            return list[get_args(answer)[0]]  # type: ignore[misc]  # a type made of a type
        if get_origin(answer) is Part:
            return get_args(answer)[0]
        return None if answer in (Document, Redirect) else answer

    @property
    def listed(self) -> bool:
        """Whether the answer is a page of a list, or holds one."""
        return get_origin(_signature(self.use_case).return_annotation) in (Page, Part)

    @property
    def name(self) -> str:
        return getattr(self.use_case, "__name__", "unnamed")

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.use_case) or "").partition("\n\n")[0].replace("\n", " ")

    @property
    def explanation(self) -> str:
        """What the use case says of itself beyond its summary."""
        return (inspect.getdoc(self.use_case) or "").partition("\n\n")[2]

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.path[1:].split("/"))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names between braces in the path."""
        return tuple(found[1] for part in self.parts if (found := _PARAMETER.match(part)))

    @property
    def query(self) -> tuple[str, ...]:
        """The fields that come from the query: all but the path's where there is no body."""
        elsewhere = {*self.parameters, *self.asks.in_header}
        names = (name for name in field_names(self.asks) if name not in elsewhere)
        if self.carries_body:
            return tuple(name for name in names if name in self.asks.in_query)
        return tuple(names)

    @property
    def body(self) -> tuple[str, ...]:
        """The fields that come from the body."""
        if not self.carries_body:
            return ()
        elsewhere = {*self.parameters, *self.asks.in_query, *self.asks.in_header}
        return tuple(name for name in field_names(self.asks) if name not in elsewhere)

    @property
    def manages(self) -> bool:
        """Whether it changes what a tenant is decided by, or how it is kept: such a write answers
        with the revision after it."""
        return self.method != "GET" and self.scopes in (_OF_ADMIN, _OF_SUPERADMIN)

    @property
    def carries_body(self) -> bool:
        return self.method in _WITH_BODY


@cache
def _signature(use_case: UseCase) -> inspect.Signature:
    return inspect.signature(use_case, eval_str=True)


def field_names(asks: type[RequestModel]) -> list[str]:
    """What a declaration's fields are called on the wire: `from` is no name for Python."""
    return [field.alias or name for name, field in asks.model_fields.items()]


def _whole(value: object) -> object:
    """`1.0` is an integer in JSON (JSON Schema, 6.1.1), and some write all their numbers so."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class RequestParser:
    """Turns a call into what its route asks. Built once per route."""

    def __init__(self, route: Route) -> None:
        self.carries_body = route.carries_body
        self._asks = route.asks
        self._query = frozenset(route.query)
        self._body = frozenset(route.body)
        self._headers = route.asks.in_header
        self._told = "by_bytes" in vars(route.asks)
        self._open = route.asks.model_config.get("extra") == "ignore"

    def __call__(self, call: ApiCall) -> Any:
        """`Malformed` or `Invalid` where the call is not what the declaration says."""
        if self._told and not call.query and not call.path and is_json(call.content_type):
            told = self._asks.by_bytes(call.body)
            if told is not None:
                return told
        if self._open and not call.query and not call.path:
            # The way of every evaluation: what is not known is passed over.
            body = self._object(call)
            for name in self._query:
                body.pop(name, None)
            return self._asks.read(body)
        query = query_fields(call.query)
        body = self._object(call)
        unknown = self._unknown(query, body)
        values = {name: _whole(body[name]) for name in self._body & body.keys()}
        values.update((name, query[name]) for name in self._query & query.keys())
        values.update(
            (field, call.headers[name])
            for field, name in self._headers.items()
            if name in call.headers
        )
        values.update(call.path)
        try:
            asked = self._asks.read(values)
        except Invalid as refusal:
            raise invalid([*unknown, *(refusal.details or "").splitlines()], "request") from None
        if unknown:
            raise invalid(unknown, "request")
        return asked

    def _unknown(self, query: dict[str, Any], body: dict[str, Any]) -> list[str]:
        if self._open:
            return []
        names = [name for name in query if name not in self._query]
        names += [name for name in body if name not in self._body]
        return [f"{name[:64]}: is not known here" for name in names]

    def _object(self, call: ApiCall) -> dict[str, Any]:
        if not self.carries_body or not (call.body or self._body):
            return {}
        return parse_object(call.body, call.content_type, unique=self._asks.unique)
