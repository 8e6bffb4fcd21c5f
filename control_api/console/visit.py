"""One request to the console, as its view sees it: who asks, the query, the form, and the way to
the operations.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

import orjson

from control_api.audit.bundle import Audit
from control_api.auth import Caller, Superadmin
from control_api.console.routes import ROOT, route_of
from control_api.edge.requests import UndecodedRequest
from control_api.edge.route import Operation
from control_api.edge.router import Bundles
from control_api.metrics.metrics import Instruments
from control_api.policy.analyses.process import Analyses
from control_api.security.console_settings import ConsoleAddress
from control_api.signin.console_session import SigningIn, Visitor
from control_api.signin.models import browser_label
from control_api.tenants.operations import Tenants
from policies.ground.clock import Clock, UnreadableTime, read_time_text
from policies.ground.errors import Forbidden, Invalid, Unauthorized, invalid


@dataclass(frozen=True, slots=True)
class Console:
    """`address` says under which host the console answers."""

    clock: Clock
    address: ConsoleAddress
    analyses: Analyses
    instruments: Instruments
    signin: SigningIn
    audit: Audit
    tenants: Tenants


# At most 15 digits: a longer number stays text, without the cost of converting it.
_WHOLE = re.compile(r"-?[0-9]{1,15}")


class Null(Enum):
    """The type of `NULL`."""

    NULL = "null"


NULL = Null.NULL
"""In `Visit.call`, a field that is sent as null, as opposed to left out."""


class SignedIn(NamedTuple):
    """Who is signed in. `session_id` names the session in lists, and is no secret. `csrf` is what
    each form of this session must contain."""

    caller: Caller | Superadmin
    session_id: str
    csrf: str
    visitor: Visitor

    @classmethod
    def of(cls, visitor: Visitor) -> "SignedIn":
        return cls(visitor.caller, visitor.session.session_id, visitor.token.form_token, visitor)

    @property
    def name(self) -> str:
        """The person's name in the audit trail."""
        return self.caller.by

    @property
    def tenant_id(self) -> str | None:
        """None for the superadmin."""
        return None if isinstance(self.caller, Superadmin) else self.caller.tenant_id


class Sessions(Protocol):
    """Begins and ends sessions of the console (`console.sessions`)."""

    async def begin(self, key: str, browser: str, remote: str) -> str: ...

    async def begin_by_link(self, code: str, browser: str, remote: str) -> str: ...

    async def end(self, who: SignedIn) -> None: ...


class Form(dict[str, str]):
    """A form's fields. Of a field that came several times, such as a list of check boxes, this
    holds the last value, and `all` has every one. Line ends are `\\n`."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def all(self, name: str) -> list[str]:
        """Every value of the field, in order."""
        return [value for each, value in self._pairs if each == name]

    def text(self, name: str) -> str | None:
        """The field's text; None if it is absent or blank, as a field that was left empty is."""
        value = self.get(name, "")
        return value if value.strip() else None

    def number(self, name: str) -> int | str | None:
        """The field as a whole number; None if it is blank. Anything else stays text, which the
        operation's request model refuses."""
        value = self.text(name)
        return int(value) if value is not None and _WHOLE.fullmatch(value.strip()) else value


@dataclass(frozen=True, slots=True)
class Visit:
    """One request. `bundles` has what each operation works with; `path` and `query` are decoded;
    `form` is empty unless the method is POST; `headers` are the request's, and `cookies` all its
    headers `Cookie`; `remote` is the peer's address."""

    console: Console
    bundles: Bundles
    path: str
    query: Mapping[str, str]
    form: Form = field(default_factory=lambda: Form([]))
    headers: Mapping[str, str] = field(default_factory=dict)
    cookies: Sequence[str] = ()
    remote: str = ""
    secure: bool = False
    """Whether the browser sees the console by HTTPS."""
    who: SignedIn | None = None
    sessions: Sessions | None = None
    """For the pages that begin and end a session."""

    @property
    def browser(self) -> str:
        """A short label of the visitor's browser, such as `Firefox on Linux`."""
        return browser_label(self.headers.get("User-Agent", ""))

    @property
    def signed_in(self) -> SignedIn:
        """Raises `Unauthorized` without a sign-in."""
        if self.who is None:
            raise Unauthorized("sign in first")
        return self.who

    @property
    def revision(self) -> int:
        """The revision of the tenant's policy set that is in force in this process."""
        caller = self.signed_in.caller
        return 0 if isinstance(caller, Superadmin) else caller.tenant.policy_set.revision

    def may(self, operation: Operation) -> bool:
        """Whether the visitor's scope may call this operation, by the API's table of routes."""
        scopes = route_of(operation).scopes
        return scopes is None or (self.who is not None and self.who.caller.scope in scopes)

    async def call(self, operation: Operation, **fields: Any) -> Any:
        """What the operation returns to this visitor. A field that is None counts as absent, and
        one that is `NULL` is null. Fields of the query and the path may be text; those of a body
        have the types of its JSON.

        Raises `Forbidden` if the visitor's scope may not call it, `Invalid` if a field is wrong,
        and whatever the operation raises.
        """
        route = route_of(operation)
        if not self.may(operation):
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

    def given(self, *names: str) -> dict[str, str]:
        """Those of these query fields that are not empty, as a search form leaves them."""
        return {name: self.query[name] for name in names if self.query.get(name)}

    def times(self, *names: str) -> dict[str, str]:
        """Those of these query fields that are not empty, each a time as people type it, in the
        form that operations take. Raises `Invalid` with every field that is no time."""
        found, faults = {}, []
        for name, text in self.given(*names).items():
            try:
                found[name] = read_time_text(text.strip(), self.console.clock.now())
            except UnreadableTime as error:
                faults.append(f"{name}: {error}")
        if faults:
            raise invalid(faults, "query")
        return found

    def required(self, name: str) -> str:
        """A field of the form, or else of the query. Raises `Invalid` if it is absent or empty."""
        value = self.form.get(name) or self.query.get(name)
        if not value:
            raise Invalid(f"`{name}` is missing")
        return value


def address(path: str, **query: str | int | None) -> str:
    """The address of one of our pages, such as `address("/agent", id=agent_id)`. `path` is below
    `/console`; fields that are None or empty are left out."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{ROOT}{path}" + (f"?{urlencode(given)}" if given else "")
