"""Leaves out of Pinecone's answers the records that may not be seen by their own mark: a condition
beside the caller's `filter`, the mark in the answer, and the check of every record. Pure.

What is asked for by the id of another record is not narrowed: it tells what that one is like.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.messages import FetchedResponse, ForwardedPart
from sidecar.protocols.shared.document_levels import (
    DocumentLevels,
    expect_list,
    expect_object,
    to_json,
)

Body = dict[str, Any]

_CLAUSE = frozenset(("type", "query", "field", "fields", "values", "sparse_values"))


class FilteredQuery(NamedTuple):
    """The body as it is forwarded, None where there is none, and what of each record is taken out
    of the answer again."""

    body: Body | None
    strip: Callable[[Body], bool]
    """Takes it out; whether it was there."""


Sift = Callable[[Body], tuple[int, bool]]
"""Goes through an answer: how many records it took out, and whether the answer is another now."""

# Besides its records, an answer holds numbers and texts, and these.
_BESIDE = frozenset(("usage", "pagination"))


class QueryForm(NamedTuple):
    """What one kind of request looks like."""

    narrow: Callable[[Any, DocumentLevels], FilteredQuery]
    at: tuple[str, ...]
    """Where the records stand in an answer."""
    metadata: str | None
    """Which member of a record holds its metadata; None where it is the record itself."""
    by_id: bool = False
    """Whether the records are an object by id, rather than a list."""
    plain: Callable[[Any], bool] = lambda _body: True
    """Whether a request can be narrowed."""
    pages: bool = False
    """Whether an answer may name a next page."""


def reading(form: QueryForm, marks: DocumentLevels, asked: FilteredQuery) -> Sift:
    """Takes out of an answer what may not be seen."""
    *way, last = form.at

    def sift(whole: Body) -> tuple[int, bool]:
        _check_form(whole, form)
        holder = whole
        for name in way:
            holder = expect_object(holder.get(name), "answer")
        found = holder.get(last)
        if found is None:
            return 0, False
        kept: Any
        if form.by_id:
            kept = {
                key: each for key, each in expect_object(found, "answer").items() if shows(each)
            }
        else:
            kept = [each for each in expect_list(found, "answer") if shows(each)]
        holder[last] = kept
        each = kept.values() if form.by_id else kept
        stripped = [asked.strip(record) for record in each]
        return len(found) - len(kept), len(kept) < len(found) or any(stripped)

    def shows(record: Any) -> bool:
        held = expect_object(record, "record")
        return marks.may_see(held if form.metadata is None else held.get(form.metadata))

    return sift


def _check_form(whole: Body, form: QueryForm) -> None:
    for name, value in whole.items():
        known = name == form.at[0] or name in _BESIDE
        if not known and isinstance(value, (list, dict)) and value:
            raise UpstreamFailed(f"the data source's answer holds `{name[:64]}`, not known here")


def sifted(answer: FetchedResponse, *sifts: Sift) -> ForwardedPart:
    """An answer after each of `sifts`; as it came where none of them changed it."""
    whole = parsed(answer)
    done = [sift(whole) for sift in sifts]
    changed = any(each for _, each in done)
    return ForwardedPart(
        to_json(whole) if changed else answer.body, sum(count for count, _ in done)
    )


def parsed(answer: FetchedResponse) -> Body:
    try:
        return expect_object(orjson.loads(answer.body), "answer")
    except orjson.JSONDecodeError as error:
        raise UpstreamFailed("the data source's answer is not JSON") from error


def _query(body: Body, marks: DocumentLevels) -> FilteredQuery:
    made = _filtered(body, marks)
    wanted = made.get("includeMetadata") is True
    made["includeMetadata"] = True
    return FilteredQuery(made, _nothing if wanted else _without("metadata"))


def _by_metadata(body: Body, marks: DocumentLevels) -> FilteredQuery:
    return FilteredQuery(_filtered(body, marks), _nothing)


def _search(body: Body, marks: DocumentLevels) -> FilteredQuery:
    made = {**body, "query": _filtered(body["query"], marks)}
    fields = made.get("fields")
    if fields is None or _holds(fields, marks):
        return FilteredQuery(made, _nothing)
    made["fields"] = [*fields, ".".join(marks.path)]
    return FilteredQuery(made, lambda hit: _take(hit.get("fields"), marks))


def _documents(body: Body, marks: DocumentLevels) -> FilteredQuery:
    """A search of documents, which returns no field unasked."""
    made = _filtered(body, marks)
    fields = made.get("include_fields") or []
    if _holds(fields, marks):
        return FilteredQuery(made, _nothing)
    made["include_fields"] = [*fields, ".".join(marks.path)]
    return FilteredQuery(made, lambda document: _take(document, marks))


def _fetched(body: Body, marks: DocumentLevels) -> FilteredQuery:
    """Documents by id or by filter, which come with every field unasked."""
    made = dict(body) if body.get("filter") is None else _filtered(body, marks)
    fields = made.get("include_fields")
    if not fields or _holds(fields, marks):
        return FilteredQuery(made, _nothing)
    made["include_fields"] = [*fields, ".".join(marks.path)]
    return FilteredQuery(made, lambda document: _take(document, marks))


def _unchanged(_body: Any, _marks: DocumentLevels) -> FilteredQuery:
    return FilteredQuery(None, _nothing)


def _filtered(body: Body, marks: DocumentLevels) -> Body:
    if not marks.filterable:
        return dict(body)
    mine = {".".join(marks.path): {"$in": list(marks.levels)}}
    theirs = body.get("filter")
    return {**body, "filter": {"$and": [mine, theirs]} if theirs else mine}


def _holds(fields: list[str], marks: DocumentLevels) -> bool:
    return "*" in fields or ".".join(marks.path) in fields


def _nothing(_record: Body) -> bool:
    return False


def _without(member: str) -> Callable[[Body], bool]:
    return lambda record: record.pop(member, None) is not None


def _take(fields: Any, marks: DocumentLevels) -> bool:
    return isinstance(fields, dict) and fields.pop(".".join(marks.path), None) is not None


def _by_value(body: Body) -> bool:
    return body.get("id") is None and body.get("queries") is None


def _scored_by_value(body: Body) -> bool:
    clauses = body.get("score_by")
    return isinstance(clauses, list) and all(
        isinstance(each, dict) and not each.keys() - _CLAUSE for each in clauses
    )


def _searched_by_value(body: Body) -> bool:
    query = body.get("query")
    return isinstance(query, dict) and _by_value(query)


QUERY = QueryForm(_query, ("matches",), "metadata", plain=_by_value)
FETCH = QueryForm(_unchanged, ("vectors",), "metadata", by_id=True)
BY_METADATA = QueryForm(_by_metadata, ("vectors",), "metadata", by_id=True, pages=True)
SEARCH = QueryForm(_search, ("result", "hits"), "fields", plain=_searched_by_value)
DOCUMENTS = QueryForm(_documents, ("matches",), None, plain=_scored_by_value)
FETCHED = QueryForm(_fetched, ("documents",), None, by_id=True, pages=True)
