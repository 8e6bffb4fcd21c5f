"""What a page is, and what its view may return. Knows no page in particular."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from control_api.console.routes import route_of
from control_api.console.visit import Visit
from control_api.edge.answers import Document, Stream
from control_api.edge.route import MAX_BODY, Operation, Scope


@dataclass(frozen=True, slots=True)
class Html:
    """A page: its template below `templates/`, and the values that the template shows."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class See:
    """Sends the browser to another of our pages (303), as after an action."""

    location: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Data:
    """JSON, for a module of ours that asked for it."""

    value: Any
    status: int = 200


Answer = Html | See | Data | Document | Stream
View = Callable[[Visit], Awaitable[Answer]]

ANYONE: Literal["anyone"] = "anyone"
"""Of a page that needs no sign-in."""
SIGNED_IN: Literal["signed in"] = "signed in"
"""Of a page for everyone who is signed in, whatever the scope."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page, or one action. `path` is whole and has no parameters: an object's id is in the
    query, or in the form, since ids are chosen by callers and may be `..` or contain `/`.

    `operation` is that of the API whose callers may open the page, or `ANYONE`, or
    `SIGNED_IN`. `max_body` is in bytes.
    """

    method: Literal["GET", "POST"]
    path: str
    operation: Operation | Literal["anyone", "signed in"]
    view: View
    max_body: int = MAX_BODY

    @property
    def scopes(self) -> frozenset[Scope] | None:
        """Whose page it is; None if it needs no sign-in."""
        if self.operation == ANYONE:
            return None
        if self.operation == SIGNED_IN:
            return frozenset({Scope.read, Scope.admin, Scope.superadmin})
        assert callable(self.operation)
        return route_of(self.operation).scopes

    @property
    def name(self) -> str:
        """The page's name among the metrics' operations."""
        return f"console_{getattr(self.view, '__name__', 'page')}"
