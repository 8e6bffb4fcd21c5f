"""`Guard`: asks Sluice, and puts what reads data behind the answer."""

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
    """Asks the sidecar (or the control API) at `url` for one agent in one role.

    For any number of threads, event loops and forked processes. `timeout`: seconds for all of a
    check. `tls`: for `https`, instead of the certificate authorities that httpx brings. Raises
    `ValueError` for a URL or a key that can't be one.
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
        """From `SLUICE_GUARD_URL`, `SLUICE_GUARD_AGENT_ID`, `SLUICE_GUARD_ROLE` and the file that
        `SLUICE_GUARD_KEY_FILE` names, or without one the key in `SLUICE_GUARD_KEY`; optionally
        `SLUICE_GUARD_TIMEOUT` in seconds. Raises `UnusableSettings` with all that is absent, a file
        that can't be read and a time-out that is no number, and `ValueError` as `Guard` does."""
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
        """Return Sluice's decision on reading the source at this level. Raises `Unavailable` if
        there is none. `query` is the text that is searched for, for the record."""
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
        """Do the same as `check`, in an event loop of asyncio."""
        prepare = self._prepare(source_id, sensitivity, query, source_type)
        if self._closed:
            return _decision(source_id, "the guard is closed")
        return _decision(source_id, await self._async_connections.post(prepare))

    def source(
        self, source_id: Source, sensitivity: Sensitivity = "critical"
    ) -> Callable[[Function], Function]:
        """Return a decorator: each call of the function needs an ALLOW for the source, and else
        raises `Denied` or `Unavailable` before anything of the function runs. A generator is
        checked when its first item is requested. `source_id` may be a function of the call's
        arguments."""
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
        """Return a function for an agent's tool, behind a decision: below `@function_tool`, `@tool`
        and so on. `source`: by default `tool://` and the function's name. `answer` tells how the
        model reads a refusal, if a framework hides other exceptions from it: True returns its text,
        a class of exceptions is raised with its text."""

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
        """Return a retriever of LangChain behind a decision, itself a `BaseRetriever`. With
        `answer`, a refusal is not raised: its text is the one document that it returns."""
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
        """Return a node postprocessor of LlamaIndex that removes the nodes whose source is not
        allowed. `source` and `sensitivity` may be functions of a node. With `answer`, a refusal is
        not raised: its text is a node that stands for those of the source."""
        from sluice_guard.llama_index import GuardPostprocessor

        return GuardPostprocessor(guard=self, source=source, sensitivity=sensitivity, answer=answer)

    def close(self) -> None:
        """Close the connections that no check uses. Later checks raise `Unavailable`."""
        self._closed = True
        self._connections.close()

    async def aclose(self) -> None:
        """Do the same as `close`, and close the connections of this event loop."""
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
        asker = (self._agent_id, self._role, who)
        content = written(asker, source_id, sensitivity, query, source_type)
        headers, target = self._headers, self._target
        if who.headers:
            headers = [*headers, *((name.encode(), value.encode()) for name, value in who.headers)]

        def prepare(exchange: Exchange) -> bytes:
            return exchange.begin(target, headers, content)

        return prepare


def _decision(source_id: str, answer: Answer | str) -> Decision:
    """Read the decision. Raises `Unavailable` here, where no frame and no context holds the
    request."""
    decision = answer if isinstance(answer, str) else read_decision(answer)
    if isinstance(decision, str):
        status = None if isinstance(answer, str) else answer.status
        raise no_decision(source_id, decision, status)
    return decision
