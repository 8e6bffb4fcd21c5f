"""The older transport of MCP (HTTP+SSE, version 2024-11-05): a GET of `/sse` opens a stream, whose
first event names the address to which messages are posted. Their responses come on the stream.

Knows which addresses open streams have named, to whom, and how to write to those streams. Decides
nothing.
"""

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.http.request_target import Target, canonical
from sidecar.protocols.messages import (
    FetchedResponse,
    ForwardedPart,
    ForwardPlan,
    InsertEvent,
)
from sidecar.settings.model import Source

PATH = "/sse"

FilterMessage = Callable[[bytes], ForwardedPart | None]


class _Session(NamedTuple):
    user: str
    session: str | None
    insert: InsertEvent

    def is_for(self, who: Attribution) -> bool:
        return (self.user, self.session) == (who.user, who.session)


class SseSessions:
    """The open streams of one server, by the address that each has named."""

    def __init__(self, source: Source) -> None:
        upstream = urlsplit(source.upstream)
        self._origin = (upstream.scheme, upstream.netloc)
        self._prefix = upstream.path.rstrip("/")
        # Where neither side has a prefix, the address is right for the agent as it is.
        self._is_moved = bool(self._prefix or source.path)
        self._open: dict[str, _Session] = {}

    def session_of(self, target: Target, who: Attribution) -> str | None:
        """Return the name of the session whose messages are posted to `target`; None if no stream
        of this user and session has named it."""
        found = self._open.get(target.forwarded)
        return f"sse {target.forwarded}" if found is not None and found.is_for(who) else None

    def answer(self, target: Target, who: Attribution, response: bytes) -> bool:
        """Writes a JSON-RPC response to the stream that named `target`. False if there is none, or
        if its agent doesn't take what was written before."""
        found = self._open.get(target.forwarded)
        if found is None or not found.is_for(who):
            return False
        return found.insert(b"event: message\ndata: " + response + b"\n\n")

    def plan(self, who: Attribution, filter_of: Callable[[str], FilterMessage]) -> ForwardPlan:
        """Filters a stream; `filter_of` takes the name of its session."""
        stream = _Stream(self, who, filter_of)
        return ForwardPlan(
            filter_response=_refuse_whole,
            filter_event=stream.filter_event,
            on_events=stream.begin,
        )

    def named(self, data: bytes) -> tuple[Target, bytes]:
        """Return the target that the server names in its first event, and the event as the agent
        gets it. Raises `UpstreamFailed`."""
        try:
            text = data.decode("ascii").strip()
            parts = urlsplit(text)
            if (parts.scheme, parts.netloc) not in (("", ""), self._origin):
                raise UpstreamFailed("the data source names another server for its messages")
            path = parts.path if parts.path.startswith("/") else f"{self._prefix}/{parts.path}"
            if self._prefix and not path.startswith(f"{self._prefix}/"):
                raise UpstreamFailed("the data source names an address above its own path")
            below = path[len(self._prefix) :]
            target = canonical(f"{below}?{parts.query}" if parts.query else below)
            # A client may write an address of another form in several ways.
            if target.path != below:
                raise Malformed(f"`{below[:64]}` is not in its plain form")
        except (Malformed, ValueError) as error:
            raise UpstreamFailed("the data source's first event names no address") from error
        if not self._is_moved and text == target.forwarded:
            return target, data
        # Relative to the stream's own address, below whatever prefix the agent has for it.
        return target, f".{target.forwarded}".encode()

    def add(self, target: Target, who: Attribution, insert: InsertEvent) -> None:
        """Opens `target` for this user and session. Raises `UpstreamFailed` if it is taken."""
        if target.forwarded in self._open:
            raise UpstreamFailed("the data source names the address of another stream")
        self._open[target.forwarded] = _Session(who.user, who.session, insert)

    def remove(self, target: Target) -> None:
        del self._open[target.forwarded]


class _Stream:
    """One stream."""

    def __init__(
        self, sessions: SseSessions, who: Attribution, filter_of: Callable[[str], FilterMessage]
    ) -> None:
        self._sessions = sessions
        self._who = who
        self._filter_of = filter_of
        self._insert: InsertEvent | None = None
        self._target: Target | None = None
        self._filter: FilterMessage | None = None

    def begin(self, insert: InsertEvent) -> Callable[[], None]:
        self._insert = insert
        return self._end

    def filter_event(self, data: bytes) -> ForwardedPart | None:
        """Filter one event: the first names the address; the others are messages. Raises
        `UpstreamFailed`."""
        if self._filter is not None:
            return self._filter(data)
        if not data.strip():
            return ForwardedPart(data)
        target, told = self._sessions.named(data)
        assert self._insert is not None
        self._sessions.add(target, self._who, self._insert)
        self._target = target
        self._filter = self._filter_of(f"sse {target.forwarded}")
        return ForwardedPart(told)

    def _end(self) -> None:
        if self._target is not None:
            self._sessions.remove(self._target)


def _refuse_whole(_response: FetchedResponse) -> ForwardedPart:
    raise UpstreamFailed("the data source's response is not a stream of events")


def _without_body(_response: FetchedResponse) -> ForwardedPart:
    return ForwardedPart(b"")


def _dropped(_data: bytes) -> None:
    return None


POSTED = ForwardPlan(filter_response=_without_body, filter_event=_dropped)
"""The plan of a message: its response comes on the stream, so the response to the POST is not
needed."""
