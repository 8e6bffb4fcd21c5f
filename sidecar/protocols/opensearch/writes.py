"""Which indices a write concerns: judged like reading where the configuration allows writes.

Each function takes the server first, as a row of the table hands it over.
"""

from functools import cache, partial
from typing import Any

from policies.ground.errors import Malformed
from sidecar.protocols.messages import RoutedRequest, SourceRef, Unresolved
from sidecar.protocols.opensearch import parameters
from sidecar.protocols.opensearch.indices import items
from sidecar.protocols.opensearch.references import of_search
from sidecar.protocols.opensearch.server import OpenSearchServer, any_index, path_index

Places = tuple[SourceRef, ...]

_ACTIONS = frozenset(("create", "delete", "index", "update"))

# What a bulk action may say of its document. Not `pipeline`: it may send it to another index.
_OF_DOCUMENT = frozenset(
    (
        "_id",
        "_index",
        "_routing",
        "if_primary_term",
        "if_seq_no",
        "op_type",
        "require_alias",
        "require_data_stream",
        "retry_on_conflict",
        "routing",
        "version",
        "version_type",
    )
)


async def by_path(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """The indices of the path; all of them where it has none."""
    return await server.places(any_index(asked), asked, _query(asked), "all")


async def by_own_path(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """The name in the last segment, of a path that begins with what it is (`_data_stream`)."""
    return await server.places(path_index(asked), asked, _query(asked), "all")


async def by_update(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """Of an update, whose answer may hold the document."""
    query = _query(asked)
    if server.marked is not None and _shows(query, asked.body or {}):
        raise Unresolved("an update that returns the document can't be told from reading it")
    return await server.places(any_index(asked), asked, query, "all")


def _shows(query: dict[str, str], body: dict[str, Any]) -> bool:
    return any(name.startswith("_source") for name in (*query, *body))


async def by_search(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """Of a write by query: the path's, and those that the query names."""
    names = [*any_index(asked), *sorted(of_search(asked.body))]
    return await server.places(names, asked, _query(asked), "all")


async def by_lines(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """The indices of many writes in one body."""
    query = _query(asked)
    names: list[str] = []
    lines = iter(asked.body)
    usual = cache(partial(any_index, asked))
    for line in lines:
        action, target = _action(line)
        document = {} if action == "delete" else next(lines, None)
        if document is None:
            raise Malformed("the last write has no document")
        if action == "update" and server.marked is not None and _shows(query, document):
            raise Unresolved("an update that returns the document can't be told from reading it")
        names += usual() if target is None else items(target)
    if not names:
        raise Malformed("the body holds no write")
    return await server.places(names, asked, query, "all")


def _action(line: dict[str, Any]) -> tuple[str, Any]:
    """What a line does, and the index that it states."""
    if len(line) != 1:
        raise Malformed("a line says more than one write")
    [(action, document)] = line.items()
    if action not in _ACTIONS or not isinstance(document, dict):
        raise Malformed(f"`{action[:32]}` is no write")
    for key in document:
        if key not in _OF_DOCUMENT:
            raise Unresolved(f"what `{key[:64]}` does to a write is not known here")
    return action, document.get("_index")


def _query(asked: RoutedRequest) -> dict[str, str]:
    return parameters.known(asked.target.query, parameters.WRITTEN)
