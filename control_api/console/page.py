"""Defines a page of the console: the request that its view sees (the signed-in person, the query,
the form, and the access to operations), the answers that the view may give, and the page's row in
the table."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import urlencode

import orjson

from control_api.audit.bundle import Audit
from control_api.audit.event_operations import follow_events
from control_api.auth import Caller, Superadmin
from control_api.edge.answers import EVENTS, Document, Stream
from control_api.edge.requests import UndecodedRequest
from control_api.edge.route import MAX_BODY, READ, Operation, Route, Scope
from control_api.edge.router import Bundles
from control_api.metrics.metrics import Instruments
from control_api.policy.analyses.process import Analyses
from control_api.routes import ROUTES
from control_api.security.console_settings import ConsoleAddress
from control_api.signin.console_session import SigningIn, Visitor
from control_api.signin.models import browser_label
from control_api.tenants.operations import Tenants
from policies.ground.clock import Clock, UnreadableTime, read_time_text
from policies.ground.errors import Forbidden, Invalid, SluiceError, Unauthorized, invalid

ROOT = "/console"

# A stream without an end, which a browser keeps open behind the session's cookie.
_LIVE = Route("GET", f"{ROOT}/decisions/live", READ, follow_events, content_type=EVENTS)


@cache
def route_of(operation: Operation) -> Route:
    """Return the API's route of an operation, which says who may call it. Raises `LookupError` if
    no route offers the operation: then no page may offer it either."""
    for route in (*ROUTES, _LIVE):
        if route.operation is operation:
            return route
    raise LookupError(f"no route offers `{getattr(operation, '__name__', operation)}`")


@dataclass(frozen=True, slots=True)
class Console:
    """The parts of the service that the console's views use, beside the operations' own. `address`
    says under which host the console answers."""

    clock: Clock
    address: ConsoleAddress
    analyses: Analyses
    instruments: Instruments
    signin: SigningIn
    audit: Audit
    tenants: Tenants


# At most 15 digits: a longer number stays text, without the cost of converting it.
_WHOLE = re.compile(r"-?[0-9]{1,15}")


NULL = object()
"""The value for a field of `Visit.call` that is sent as null, rather than left out."""


class SignedIn(NamedTuple):
    """The signed-in person and their session. `session_id` identifies the session in lists, and is
    no secret. `csrf` is the token that each form of this session must contain."""

    caller: Caller | Superadmin
    session_id: str
    csrf: str
    visitor: Visitor

    @classmethod
    def of(cls, visitor: Visitor) -> "SignedIn":
        return cls(visitor.caller, visitor.session.session_id, visitor.token.form_token, visitor)

    @property
    def name(self) -> str:
        """The person's name as the audit trail records it."""
        return self.caller.by

    @property
    def tenant_id(self) -> str | None:
        """The tenant's id; None for the superadmin, who belongs to no tenant."""
        return None if isinstance(self.caller, Superadmin) else self.caller.tenant_id


class Sessions(Protocol):
    """Begins and ends sessions of the console (`console.sessions`)."""

    async def begin(self, key: str, browser: str, remote: str) -> str: ...

    async def begin_by_link(self, code: str, browser: str, remote: str) -> str: ...

    async def end(self, who: SignedIn) -> None: ...


class Form(dict[str, str]):
    """The fields of a submitted form, by name. If a field came several times, such as a list of
    check boxes, this holds the last value, and `all` returns every one. Line ends are `\\n`."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def all(self, name: str) -> list[str]:
        return [value for each, value in self._pairs if each == name]

    def lines(self, name: str) -> list[str]:
        """Return the lines of the field that are not blank, unchanged."""
        return [line for line in self.get(name, "").split("\n") if line.strip()]

    def require_checked(self) -> None:
        """Raise `Invalid` unless the form's confirmation box (`sure`) is checked."""
        if self.get("sure") != "yes":
            raise invalid(["sure: check the box first"], "form")

    def require_confirmed(self, what: str) -> None:
        """Raise `Invalid`, with the request to confirm `what`, unless the form's box `confirm` is
        checked."""
        if self.get("confirm") != "yes":
            raise Invalid(f"confirm {what}")

    def text(self, name: str) -> str | None:
        """Return the field's text; None if it is absent or blank."""
        value = self.get(name, "")
        return value if value.strip() else None

    def number(self, name: str) -> int | str | None:
        """Return the field as a whole number; None if it is blank. Any other text is returned as it
        is, and the operation's request model refuses it."""
        value = self.text(name)
        return int(value) if value is not None and _WHOLE.fullmatch(value.strip()) else value


@dataclass(frozen=True, slots=True)
class Visit:
    """One request to the console. `bundles` has the parts of the service that each operation works
    with; `path` and `query` are decoded; `form` is empty unless the method is POST; `headers` are
    the request's, and `cookies` all its headers `Cookie`; `remote` is the peer's address."""

    console: Console
    bundles: Bundles
    path: str
    query: Mapping[str, str]
    form: Form = field(default_factory=lambda: Form([]))
    headers: Mapping[str, str] = field(default_factory=dict)
    cookies: Sequence[str] = ()
    remote: str = ""
    secure: bool = False
    """True if the browser sees the console by HTTPS."""
    who: SignedIn | None = None
    sessions: Sessions | None = None
    """Begins and ends sessions, for the pages that sign people in and out."""

    @property
    def browser(self) -> str:
        """A label for the visitor's browser, such as `Firefox on Linux`."""
        return browser_label(self.headers.get("User-Agent", ""))

    @property
    def signed_in(self) -> SignedIn:
        """The signed-in person. Raises `Unauthorized` if there is none."""
        if self.who is None:
            raise Unauthorized("sign in first")
        return self.who

    @property
    def revision(self) -> int:
        """The revision of the tenant's policy set that is in force in this process; 0 for the
        superadmin."""
        caller = self.signed_in.caller
        return 0 if isinstance(caller, Superadmin) else caller.tenant.policy_set.revision

    def may_call(self, operation: Operation) -> bool:
        """Return whether the visitor's scope may call this operation, according to the API's
        routes."""
        scopes = route_of(operation).scopes
        return scopes is None or (self.who is not None and self.who.caller.scope in scopes)

    async def call(self, operation: Operation, **fields: Any) -> Any:
        """Call an operation in the visitor's name, and return its result. A field that is None
        counts as absent, and one that is `NULL` is null. Fields of the query and the path may be
        text; those of a body have the types of its JSON.

        Raises `Forbidden` if the visitor's scope may not call it, `Invalid` if a field is wrong,
        and whatever the operation raises.
        """
        route = route_of(operation)
        if not self.may_call(operation):
            needed = " or ".join(sorted(route.scopes or ()))
            raise Forbidden(f"this needs the scope {needed}")
        values: dict[str, Any] = {
            name: None if value is NULL else value
            for name, value in fields.items()
            if value is not None
        }
        caller = None if self.who is None else self.who.caller
        bundle = self.bundles.of(operation)
        if route.request_type.decoded_later:
            outside = {*route.parameters, *route.query}
            body = {name: value for name, value in values.items() if name not in outside}
            rest = {name: value for name, value in values.items() if name in outside}
            return await operation(bundle, caller, UndecodedRequest(rest, orjson.dumps(body)))
        return await operation(bundle, caller, route.request_type.read(values))

    def filled(self, *names: str) -> dict[str, str]:
        """Return those of these query fields that are not empty. A search form sends fields that
        were left empty too."""
        return {name: self.query[name] for name in names if self.query.get(name)}

    def times(self, *names: str) -> dict[str, str]:
        """Return those of these query fields that are not empty, each a time as people type it,
        converted to the form that operations take. Raises `Invalid` with every field that is not a
        time."""
        found, faults = {}, []
        for name, text in self.filled(*names).items():
            try:
                found[name] = read_time_text(text.strip(), self.console.clock.now())
            except UnreadableTime as error:
                faults.append(f"{name}: {error}")
        if faults:
            raise invalid(faults, "query")
        return found

    def required(self, name: str) -> str:
        """Return a field of the form, or else of the query. Raises `Invalid` if it has no value."""
        value = self.form.get(name) or self.query.get(name)
        if not value:
            raise Invalid(f"`{name}` is missing")
        return value


def address(path: str, /, **query: str | int | None) -> str:
    """Return the address of one of our pages, such as `address("/agent", id=agent_id)`. `path` is
    below `/console`; fields that are None or empty are left out."""
    fields = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{ROOT}{path}" + (f"?{urlencode(fields)}" if fields else "")


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """The answer of a view that shows a page: its template below `templates/`, and the values that
    the template shows. If there is a `problem`, the page shows it, and its status is that of the
    response unless `status` is given."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    problem: SluiceError | None = None
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageRedirect:
    """The answer of a view that sends the browser to another of our pages (303), as after an
    action."""

    location: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """The answer of a view that sends JSON to one of our scripts."""

    value: Any
    status: int = 200


Answer = HtmlPage | PageRedirect | JsonAnswer | Document | Stream
View = Callable[[Visit], Awaitable[Answer]]
ShowAgain = Callable[[Visit, SluiceError], Awaitable[Answer]]
"""A function that shows a form again, with the reason for which it was refused."""

Audience = Operation | Literal["anyone", "signed in"]
ANYONE: Literal["anyone"] = "anyone"
SIGNED_IN: Literal["signed in"] = "signed in"


@dataclass(frozen=True, slots=True)
class Page:
    """One page, or one action, of the console. `path` is whole and has no parameters: an object's
    id is in the query, or in the form, since ids are chosen by callers and may be `..` or contain
    `/`.

    `operation` is the API's operation whose callers may open the page; `ANYONE` needs no sign-in,
    and `SIGNED_IN` no scope. If the view raises an error, `again` answers. `max_body` is in bytes.
    """

    method: Literal["GET", "POST"]
    path: str
    operation: Audience
    view: View
    again: ShowAgain | None = None
    max_body: int = MAX_BODY

    @property
    def scopes(self) -> frozenset[Scope] | None:
        """The scopes that may open the page; None if the page needs no sign-in."""
        if self.operation == ANYONE:
            return None
        if self.operation == SIGNED_IN:
            return frozenset({Scope.read, Scope.admin, Scope.superadmin})
        assert callable(self.operation)
        return route_of(self.operation).scopes

    @property
    def name(self) -> str:
        """The page's name as the label `operation` of metrics."""
        return f"console_{getattr(self.view, '__name__', 'page')}"


def get(path: str, operation: Audience, view: View, again: ShowAgain | None = None) -> Page:
    """Return a page below `/console` that shows something."""
    return Page("GET", f"{ROOT}{path}", operation, view, again)


def post(
    path: str,
    operation: Audience,
    view: View,
    again: ShowAgain | None = None,
    max_body: int = MAX_BODY,
) -> Page:
    """Return an action below `/console`, which a form calls."""
    return Page("POST", f"{ROOT}{path}", operation, view, again, max_body)
