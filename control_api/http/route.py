"""What a route is, and how a request becomes what it asks. Knows no route in particular."""

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from control_api.asked import Asked
from control_api.http.call import Call, query_fields
from policies.ground.body import parse_object
from policies.ground.errors import Invalid, invalid

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


@dataclass(frozen=True, slots=True)
class Route:
    """One operation. Everything about it that HTTP must know is here, and nowhere else.

    `scopes` None needs no key. `answers` is the type that the use case returns, from which the
    description is made; `errors` are the statuses beyond those that follow from the rest.
    """

    method: str
    path: str
    scopes: frozenset[Scope] | None
    use_case: UseCase
    asks: type[Asked]
    answers: Any
    status: int = 200
    errors: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return getattr(self.use_case, "__name__", "unnamed")

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.use_case) or "").partition("\n\n")[0].replace("\n", " ")

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
        names = (name for name in self.asks.model_fields if name not in self.parameters)
        if self.carries_body:
            return tuple(name for name in names if name in self.asks.in_query)
        return tuple(names)

    @property
    def body(self) -> tuple[str, ...]:
        """The fields that come from the body."""
        if not self.carries_body:
            return ()
        elsewhere = {*self.parameters, *self.asks.in_query}
        return tuple(name for name in self.asks.model_fields if name not in elsewhere)

    @property
    def carries_body(self) -> bool:
        return self.method in _WITH_BODY


class Reader:
    """Turns a call into what its route asks. Built once per route."""

    def __init__(self, route: Route) -> None:
        self.carries_body = route.carries_body
        self._asks = route.asks
        self._query = frozenset(route.query)
        self._body = frozenset(route.body)
        self._open = route.asks.model_config.get("extra") == "ignore"

    def __call__(self, call: Call) -> Any:
        """`Malformed` or `Invalid` where the call is not what the declaration says."""
        if self._open and not self._query and not call.path:
            # The way of every evaluation: what is not known is passed over.
            return self._asks.read(self._object(call))
        query = query_fields(call.query)
        body = self._object(call)
        unknown = self._unknown(query, body)
        values = {name: body[name] for name in self._body & body.keys()}
        values.update((name, query[name]) for name in self._query & query.keys())
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

    def _object(self, call: Call) -> dict[str, Any]:
        if not self.carries_body or not (call.body or self._body):
            return {}
        return parse_object(call.body, call.content_type, unique=self._asks.unique)
