"""Pinecone's data plane (data-sources.md 5.5; API 2026-07 and its client 10.2).

An index is a host, so the configured alias stands for it; what a request reads is a namespace of
it, named in the path, the query or the body. The namespace without a name and `__default__` are
one.

The table at the end holds the data plane's routes, and those of an assistant. Knows Pinecone's
routes; judges nothing.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from sidecar.protocols.bodies import json_object, optional_json_object
from sidecar.protocols.lenient import member, of_query
from sidecar.protocols.marks import a_list, an_object, marks_of
from sidecar.protocols.pinecone_documents import (
    BY_METADATA,
    DOCUMENTS,
    FETCH,
    FETCHED,
    QUERY,
    SEARCH,
    Body,
    Form,
    reading,
    sifted,
)
from sidecar.protocols.pinecone_places import Places
from sidecar.protocols.protocol import (
    NOTHING,
    Asked,
    Class,
    Dialect,
    Match,
    Place,
    Prepared,
    Route,
    Sight,
    Table,
    Unresolved,
)
from sidecar.proxy.target import Target


class Pinecone(Places, Dialect):
    """One index."""

    def match(self, method: str, target: Target) -> Match | None:
        return _TABLE.match(method, target)

    def narrowed(
        self, form: Form, asked: Asked, places: tuple[Place, ...], sight: Sight
    ) -> Prepared:
        """Records as far as they may be seen; the next page is remembered."""
        marks = marks_of(sight)
        begun = partial(self._begin, asked, places)
        if marks is None:
            return Prepared(read=lambda answer: sifted(answer, begun)) if form.pages else NOTHING
        made = form.narrow(asked.body, marks)
        sift = reading(form, marks, made)
        body = None if made.body is None else orjson.dumps(made.body)
        return Prepared(body, lambda answer: sifted(answer, begun, sift))

    def paged(self, asked: Asked, places: tuple[Place, ...], _sight: Sight) -> Prepared:
        """The next page is remembered."""
        return Prepared(read=lambda answer: sifted(answer, partial(self._begin, asked, places)))

    def listed(self, _asked: Asked, _places: object, sight: Sight) -> Prepared:
        """`{"namespaces": [{"name"}], "total_count"}`, as far as they may be seen."""

        def sift(whole: Body) -> tuple[int, bool]:
            found = a_list(whole.get("namespaces") or [], "list")
            whole["namespaces"] = [each for each in found if self._shows(_named(each), sight)]
            # It counts the namespaces of all pages, those that may not be seen among them.
            whole.pop("total_count", None)
            return 0, True

        return Prepared(read=lambda answer: sifted(answer, sift))

    def counted(self, _asked: Asked, _places: object, sight: Sight) -> Prepared:
        """`{"namespaces": {name: {"vectorCount"}}, "totalVectorCount"}`, likewise."""

        def sift(whole: Body) -> tuple[int, bool]:
            found = an_object(whole.get("namespaces") or {}, "answer")
            seen = {name: each for name, each in found.items() if self._shows(name, sight)}
            if len(seen) == len(found):
                return 0, False
            whole["namespaces"] = seen
            whole["totalVectorCount"] = sum(
                an_object(each, "answer").get("vectorCount") or 0 for each in seen.values()
            )
            whole.pop("indexFullness", None)
            return 0, True

        return Prepared(read=lambda answer: sifted(answer, sift))

    def stats(self, asked: Asked) -> Route:
        """Counts by a filter tell what is in every namespace at once."""
        [given] = member(asked.body or {}, "filter")
        [stated] = of_query(asked.target.query, "filter")
        if given or stated:
            raise Unresolved("counts by a filter concern every namespace at once")
        return _STATS

    def _shows(self, name: str, sight: Sight) -> bool:
        return sight.permits(self._of(name))


def _named(element: Any) -> str:
    name = an_object(element, "list").get("name")
    return name if isinstance(name, str) else ""


_RETRIEVE, _METADATA, _WRITE, _BULK = Class.RETRIEVE, Class.METADATA, Class.WRITE, Class.BULK
_path, _body, _hint = Pinecone.of_path, Pinecone.of_body, Pinecone.hint

_R, _D = "/records/namespaces/{namespace}", "/namespaces/{namespace}/documents"
_CHAT, _FILES = "/assistant/chat/{assistant}", "/assistant/files/{assistant}"


def _sieved(methods: str, path: str, places: Any, form: Form) -> Route:
    """A row that leaves out what may not be seen. A request that can't be narrowed is another row:
    all of it is judged as one."""
    inspected = None if methods == "GET" else json_object
    pages = Pinecone.paged if form.pages else None
    blunt = Route(methods, path, _RETRIEVE, places, inspected=inspected, prepared=pages)

    def prepared(
        pinecone: Pinecone, asked: Asked, found: tuple[Place, ...], sight: Sight
    ) -> Prepared:
        return pinecone.narrowed(form, asked, found, sight)

    def refined(_pinecone: Pinecone, asked: Asked) -> Route:
        return sharp if form.plain(asked.body) else blunt

    sharp = replace(blunt, prepared=prepared, sieved=True)
    return replace(sharp, refined=refined)


_STATS = Route("GET POST", "/describe_index_stats", _METADATA, prepared=Pinecone.counted)

# INVARIANT: a literal segment stands above a `{parameter}` in its place. What is not here is denied
# as `unclassified_route`: a newer Pinecone opens nothing by itself.
ROUTES = (
    _sieved("POST", "/query", Pinecone.of_queries, QUERY),
    _sieved("GET", "/vectors/fetch", Pinecone.of_query, FETCH),
    _sieved("POST", "/vectors/fetch_by_metadata", _body, BY_METADATA),
    _sieved("POST", f"{_R}/search", Pinecone.of_records, SEARCH),
    _sieved("POST", f"{_D}/search", Pinecone.of_documents, DOCUMENTS),
    _sieved("POST", f"{_D}/fetch", Pinecone.of_documents, FETCHED),
    # Ids without metadata: nothing in the answer could prove what they are of.
    Route("GET", "/vectors/list", _RETRIEVE, Pinecone.of_query, prepared=Pinecone.paged),
    Route(
        "POST",
        f"{_D}/list",
        _RETRIEVE,
        Pinecone.of_documents,
        inspected=json_object,
        prepared=Pinecone.paged,
    ),
    Route("POST", _CHAT, _RETRIEVE, Pinecone.of_assistant),
    Route("POST", f"{_CHAT}/context", _RETRIEVE, Pinecone.of_assistant),
    Route("POST", f"{_CHAT}/chat/completions", _RETRIEVE, Pinecone.of_assistant),
    Route("GET", _FILES, _RETRIEVE, Pinecone.of_assistant),
    Route("GET", f"{_FILES}/{{file}}", _RETRIEVE, Pinecone.of_assistant),
    Route("GET", "/namespaces", _METADATA, prepared=Pinecone.listed),
    Route("GET", "/namespaces/{namespace}", _METADATA, _path),
    replace(_STATS, inspected=optional_json_object, refined=Pinecone.stats),
    Route("POST", "/vectors/upsert", _WRITE, _body, inspected=json_object),
    Route("POST", "/vectors/update", _WRITE, _body, inspected=json_object),
    Route("POST", "/vectors/delete", _WRITE, _body, inspected=json_object),
    Route("POST", "/namespaces", _WRITE, Pinecone.created, inspected=json_object),
    Route("DELETE", "/namespaces/{namespace}", _WRITE, _path, _hint),
    Route("POST", f"{_R}/upsert", _WRITE, _path, _hint),
    *(
        Route("POST", f"{_D}/{what}", _WRITE, _path, _hint)
        for what in ("upsert", "update", "delete")
    ),
    Route("POST", _FILES, _WRITE, Pinecone.of_assistant, Pinecone.hint_of_assistant),
    Route(
        "DELETE",
        f"{_FILES}/{{file}}",
        _WRITE,
        Pinecone.of_assistant,
        Pinecone.hint_of_assistant,
    ),
    # They copy from storage outside, into any namespace.
    Route("GET POST", "/bulk/imports", _BULK),
    Route("GET DELETE", "/bulk/imports/{import}", _BULK),
    # An assistant's instructions, and assistants as such.
    Route("GET POST", "/assistant/assistants", Class.ADMIN),
    Route("GET PATCH DELETE", "/assistant/assistants/{assistant}", Class.ADMIN),
)

_TABLE = Table(ROUTES)
