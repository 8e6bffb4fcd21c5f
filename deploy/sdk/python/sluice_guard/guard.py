"""`Guard`: asks Sluice for decisions, and wraps functions, tools and retrievers so that they run
only on an ALLOW."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

import httpx

from sluice_guard.async_connections import AsyncConnections
from sluice_guard.attribution import current
from sluice_guard.connections import Connections
from sluice_guard.decisions import Answer, Decision, Sensitivity, no_decision, read_decision
from sluice_guard.endpoint import Endpoint, Prepare, read_url
from sluice_guard.exchange import Exchange
from sluice_guard.gate import Answering, Gate, Source
from sluice_guard.question import written
from sluice_guard.settings import read_settings
from sluice_guard.wrapping import behind

if TYPE_CHECKING:
    from langchain_core.retrievers import BaseRetriever

    from sluice_guard.langchain import GuardedRetriever
    from sluice_guard.llama_index import GuardPostprocessor, LevelOf, SourceOf

Function = TypeVar("Function", bound=Callable[..., Any])
_PATH = b"v1/context/evaluate"


class Guard:
    """Asks the sidecar (or the control API) at `url` for decisions about one agent in one role.

    One guard may be used by any number of threads, event loops and forked processes. `timeout` is
    the time in seconds for a whole check. `tls` is used for `https` in place of the certificate
    authorities that come with httpx. Raises `ValueError` for a URL or a key that is not valid.
    """

    def __init__(
        self,
        url: str,
        key: str,
        agent_id: str,
        role: str,
        *,
        timeout: float = 2.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if not (key.isascii() and key.isprintable() and key and " " not in key):
            raise ValueError("the key is empty, or has characters that no key has")
        self._address = address = read_url(url)
        if address.scheme == "https" and tls is None:
            tls = httpx.create_ssl_context(trust_env=False)
        tls = tls if address.scheme == "https" else None
        port = address.port or (80 if tls is None else 443)
        endpoint = Endpoint(address.raw_host.decode(), port, tls, timeout)
        self._connections = Connections(endpoint)
        self._async_connections = AsyncConnections(endpoint)
        self._target = address.raw_path.rstrip(b"/") + b"/" + _PATH
        self._headers = [
            (b"host", address.netloc),
            (b"x-api-key", key.encode()),
            (b"content-type", b"application/json"),
            (b"accept", b"application/json"),
        ]
        self._agent_id = agent_id
        self._role = role
        self._closed = False

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Guard:
        """Make a guard from environment variables: `SLUICE_GUARD_URL`, `SLUICE_GUARD_AGENT_ID`,
        `SLUICE_GUARD_ROLE`, and the key in the file that `SLUICE_GUARD_KEY_FILE` names, or without
        such a file in `SLUICE_GUARD_KEY`; optionally `SLUICE_GUARD_TIMEOUT` in seconds. Raises
        `UnusableSettings`, which lists all variables that are missing, a key file that can't be
        read and a time-out that is not a number; and `ValueError` as `Guard` does."""
        url, key, agent_id, role, timeout = read_settings(environ)
        return cls(url, key, agent_id, role, timeout=timeout)

    def check(
        self,
        source_id: str,
        sensitivity: Sensitivity = "critical",
        *,
        query: str | None = None,
        source_type: str = "sdk",
    ) -> Decision:
        """Ask Sluice whether the agent may read the source at this sensitivity, and return the
        decision. Raises `Unavailable` if there is none. `query` is the text that is searched for;
        it is only recorded."""
        prepare = self._prepare(source_id, sensitivity, query, source_type)
        answer = "the guard is closed" if self._closed else self._connections.post(prepare)
        return _decision(source_id, answer)

    async def acheck(
        self,
        source_id: str,
        sensitivity: Sensitivity = "critical",
        *,
        query: str | None = None,
        source_type: str = "sdk",
    ) -> Decision:
        """Ask as `check` does, in an event loop of asyncio."""
        prepare = self._prepare(source_id, sensitivity, query, source_type)
        if self._closed:
            return _decision(source_id, "the guard is closed")
        return _decision(source_id, await self._async_connections.post(prepare))

    def source(
        self, source_id: Source, sensitivity: Sensitivity = "critical"
    ) -> Callable[[Function], Function]:
        """Return a decorator for functions that read the source. Each call is checked first:
        without an ALLOW it raises `Denied` or `Unavailable`, and nothing of the function runs. A
        generator is checked when its first item is requested. `source_id` may be a function of the
        call's arguments."""
        gate = Gate(self, source_id, sensitivity)
        return lambda function: behind(gate, function)

    @overload
    def tool(
        self,
        function: Function,
        *,
        source: Source | None = ...,
        sensitivity: Sensitivity = ...,
        answer: Answering = ...,
    ) -> Function: ...

    @overload
    def tool(
        self,
        *,
        source: Source | None = ...,
        sensitivity: Sensitivity = ...,
        answer: Answering = ...,
    ) -> Callable[[Function], Function]: ...

    def tool(
        self,
        function: Function | None = None,
        *,
        source: Source | None = None,
        sensitivity: Sensitivity = "critical",
        answer: Answering = False,
    ) -> Function | Callable[[Function], Function]:
        """Wrap a function that is a tool of an agent, so that each call is checked first. Use it as
        a decorator below `@function_tool`, `@tool` and so on. `source` defaults to `tool://` and
        the function's name. `answer` decides how a refusal reaches the model if a framework hides
        other exceptions from it: True returns the refusal's text, an exception class is raised with
        that text."""

        def wrap(function: Function) -> Function:
            named = source or f"tool://{getattr(function, '__name__', 'unnamed')}"
            return behind(Gate(self, named, sensitivity, answer), function)

        return wrap if function is None else wrap(function)

    def retriever(
        self,
        retriever: BaseRetriever,
        source: str,
        sensitivity: Sensitivity = "critical",
        *,
        answer: bool = False,
    ) -> GuardedRetriever:
        """Wrap a retriever of LangChain, so that each retrieval is checked first. The result is a
        `BaseRetriever` too. With `answer`, a refusal is not raised: its text is returned as the
        only document."""
        from sluice_guard.langchain import GuardedRetriever

        return GuardedRetriever(
            guard=self, retriever=retriever, source=source, sensitivity=sensitivity, answer=answer
        )

    def node_postprocessor(
        self,
        source: str | SourceOf,
        sensitivity: Sensitivity | LevelOf = "critical",
        *,
        answer: bool = False,
    ) -> GuardPostprocessor:
        """Return a node postprocessor for LlamaIndex that passes only nodes whose source is
        allowed. It raises the refusal if a source is not allowed; with `answer`, one node with the
        refusal's text takes the place of that source's nodes instead. `source` and `sensitivity`
        may be functions of a node."""
        from sluice_guard.llama_index import GuardPostprocessor

        return GuardPostprocessor(guard=self, source=source, sensitivity=sensitivity, answer=answer)

    def close(self) -> None:
        """Close the idle connections. Later checks raise `Unavailable`."""
        self._closed = True
        self._connections.close()

    async def aclose(self) -> None:
        """Close as `close` does, including the idle connections of this event loop."""
        self.close()
        self._async_connections.close()

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Guard:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<Guard {self._address} agent={self._agent_id!r} role={self._role!r}>"

    def __copy__(self) -> Guard:
        return self

    def __deepcopy__(self, _memo: object) -> Guard:
        # Frameworks copy their tools. A copy could differ in nothing, and would hold the key.
        return self

    def _prepare(
        self, source_id: str, sensitivity: str, query: str | None, source_type: str
    ) -> Prepare:
        who = current()
        principal = (self._agent_id, self._role, who)
        content = written(principal, source_id, sensitivity, query, source_type)
        headers, target = self._headers, self._target
        if who.headers:
            headers = [*headers, *((name.encode(), value.encode()) for name, value in who.headers)]

        def prepare(exchange: Exchange) -> bytes:
            return exchange.begin(target, headers, content)

        return prepare


def _decision(source_id: str, answer: Answer | str) -> Decision:
    """Return the decision in a response. Raises `Unavailable` if there is none; it is raised here
    because no frame or context here holds the request, and so its key."""
    decision = answer if isinstance(answer, str) else read_decision(answer)
    if isinstance(decision, str):
        status = None if isinstance(answer, str) else answer.status
        raise no_decision(source_id, decision, status)
    return decision
