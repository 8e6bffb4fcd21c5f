"""The user, session and task for which the agent acts in the current context (thread or asyncio
task), and the W3C headers that pass them on.

They are attribution only: Sluice records them, and may deny because of them, but they never allow
anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple
from urllib.parse import quote, unquote

_KEYS = {"sluice.user": "user", "sluice.session": "session", "sluice.task": "task"}
# W3C Baggage, section 3.3.2: what every party must be able to pass on.
_MAX_MEMBERS = 64
_MAX_BYTES = 8192
_TRACE = ("traceparent", "tracestate")


class Acting(NamedTuple):
    """The user, session and task that the agent acts for in one context, and the headers that state
    them."""

    user: str | None = None
    session: str | None = None
    task: str | None = None
    members: tuple[str, ...] = ()
    """The baggage members of other software, as they arrived."""
    trace: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    """The headers that pass the values on in a request."""


_ITSELF = Acting()
_CURRENT: ContextVar[Acting] = ContextVar("sluice_guard.attribution", default=_ITSELF)


def current() -> Acting:
    return _CURRENT.get()


@contextmanager
def acting(
    *,
    user: str | None = None,
    session: str | None = None,
    task: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """State the user, session and task of every check within the `with` block. A value that is left
    out is read from `headers`, the headers of the request that the agent serves (`baggage` with
    `sluice.user`, `sluice.session`, `sluice.task`; `traceparent` and `tracestate`). If it is not
    there either, the value of the surrounding context stays.

    Raises `ValueError` if the baggage states one of the three twice.
    """
    outer = _CURRENT.get()
    arrived = {name.lower(): value for name, value in (headers or {}).items()}
    stated, members = _read_baggage(arrived.get("baggage", ""))
    trace = tuple((name, arrived[name]) for name in _TRACE if _is_plain(arrived.get(name)))
    inner = Acting(
        user or stated.get("user") or outer.user,
        session or stated.get("session") or outer.session,
        task or stated.get("task") or outer.task,
        members or outer.members,
        trace or outer.trace,
    )
    token = _CURRENT.set(inner._replace(headers=_written(inner)))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def propagation_headers() -> dict[str, str]:
    """Return the headers `baggage`, `traceparent` and `tracestate` of the current context. Add them
    to the agent's own requests, such as one to a data source through the sidecar."""
    return dict(_CURRENT.get().headers)


def _read_baggage(line: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Parse a `baggage` header: return the decoded values of Sluice's own members, and the members
    of other software as they are. Raises `ValueError` if one of Sluice's members is there twice."""
    stated: dict[str, str] = {}
    members: list[str] = []
    room = _MAX_BYTES
    for member in (each.strip(" \t") for each in line.split(",")):
        key, equals, rest = member.partition("=")
        name = key.strip(" \t")
        field = _KEYS.get(name)
        if field is not None and equals:
            if field in stated:
                raise ValueError(f"the baggage states `{name}` twice")
            # Properties follow the value after `;`.
            stated[field] = unquote(rest.partition(";")[0].strip(" \t"))
        elif equals and _is_plain(member) and len(members) < _MAX_MEMBERS - len(_KEYS):
            room -= len(member) + 1
            if room >= 0 and not name.startswith("sluice."):
                members.append(member)
    return stated, tuple(members)


def _written(acting_for: Acting) -> tuple[tuple[str, str], ...]:
    own = [
        f"{key}={quote(value, safe='')}"
        for key, field in _KEYS.items()
        if (value := getattr(acting_for, field)) is not None
    ]
    baggage = ",".join((*own, *acting_for.members))
    return ((("baggage", baggage),) if baggage else ()) + acting_for.trace


def _is_plain(value: str | None) -> bool:
    """Return whether a text can be sent as the value of a header."""
    return bool(value) and value is not None and value.isascii() and value.isprintable()
