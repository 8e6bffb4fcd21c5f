"""Searches over gRPC: the condition on levels in the call, what can't be filtered, and the pages of
a search, asked of the route table itself (`wires.py`)."""

from typing import Any

import pytest

from sidecar.http.attribution import Attribution
from sidecar.protocols.milvus.grpc_schema import REQUESTS, RESPONSES
from sidecar.protocols.milvus.sources import SERVICE
from sidecar.protocols.protocol import (
    FetchedResponse,
    ForwardPlan,
    GrpcMessage,
    ProtocolRoute,
    RoutedRequest,
    SourceRef,
    Unresolved,
    Visibility,
)
from tests.sidecar.protocols.milvus.front import MARKED, MINE
from tests.sidecar.protocols.milvus.wires import WHO, Field, Table

MARKED_VISIBILITY = Visibility(lambda _: True, "level", ("low", "medium"))
EVERYTHING = Visibility(lambda _: True, "level", None)
C = {"collection_name": "open_docs"}
EXPRESSION = 1
SOURCES = (SourceRef("milvus://kb/default/open_docs", "low"),)


class Asked:
    """A call of a search: the row that it leads to, and how it is forwarded."""

    def __init__(self, table: Table, method: str, values: dict[str, Any], *fields: Field) -> None:
        data = REQUESTS[f"{method}Request"].encode(values)
        self.table = table
        self.method = method
        message = GrpcMessage(REQUESTS[f"{method}Request"].decode(data).values, data)
        first, self.request = table.routed(f"{SERVICE}/{method}", message, *fields)
        refined = first if first.refine is None else first.refine(table.milvus, self.request)
        assert refined is not None
        self.route: ProtocolRoute = refined

    def plan(self, visibility: Visibility = MARKED_VISIBILITY) -> ForwardPlan:
        assert self.route.plan_forward is not None
        return self.route.plan_forward(self.table.milvus, self.request, SOURCES, visibility)

    def forwarded(self) -> dict[str, Any]:
        body = self.plan().body
        assert body is not None
        return REQUESTS[f"{self.method}Request"].decode(body).values

    async def sources(self, who: Attribution = WHO) -> list[str]:
        assert self.route.find_sources is not None
        request: RoutedRequest = self.request._replace(attribution=who)
        return [
            each.source_id for each in await self.route.find_sources(self.table.milvus, request)
        ]


def table() -> Table:
    return Table(**MARKED)


def test_the_condition_and_the_level_go_into_the_call() -> None:
    dsl = {"dsl": "id > 0", "dsl_type": EXPRESSION}
    found = Asked(table(), "Search", C | dsl | {"output_fields": ["text"]}).forwarded()
    assert (found["dsl"], found["output_fields"]) == (f"(id > 0) and {MINE}", ["text", "level"])
    found = Asked(table(), "Search", C | {"output_fields": ["*"]}).forwarded()
    assert (found["dsl"], found["dsl_type"], found["output_fields"]) == (MINE, EXPRESSION, ["*"])
    found = Asked(table(), "HybridSearch", C | {"requests": [C | dsl, C]}).forwarded()
    assert [each["dsl"] for each in found["requests"]] == [f"(id > 0) and {MINE}", MINE]
    assert found["output_fields"] == ["level"]
    found = Asked(table(), "Query", C | {"expr": "id > 0", "output_fields": ["level"]}).forwarded()
    assert (found["expr"], found["output_fields"]) == (f"(id > 0) and {MINE}", ["level"])
    assert found["collection_name"] == "open_docs"
    # What only the header says goes into every call: not every method of Milvus reads the header.
    for table_, method, more in (
        (table(), "Query", {"expr": "id > 0"}), (Table(), "HybridSearch", {}),
        (Table(), "ListNamespaces", {"prefix": "a"}), (Table(), "DescribeDatabase", {}),
    ):  # fmt: skip
        values = more if method == "DescribeDatabase" else C | more
        found = Asked(table_, method, values, (b"dbname", b"other")).forwarded()
        assert found["db_name"] == "other"
        assert values.keys() <= found.keys()
        assert Asked(Table(), method, values, (b"dbname", b"")).plan() == ForwardPlan()
        stated = values | {"db_name": "other"}
        assert Asked(Table(), method, stated, (b"dbname", b"other")).plan() == ForwardPlan()


UNFILTERED: list[tuple[str, dict[str, Any]]] = [
    ("Search", {"dsl": "true) or (true", "dsl_type": EXPRESSION}),
    # Another form than an expression.
    ("Search", {"dsl": "{}"}),
    ("Search", {"search_by_primary_keys": True}),
    ("Search", {"ids": b"\n\x00"}),
    ("Search", {"highlighter": b""}),
    ("Search", {"search_aggregation": b""}),
    ("Search", {"function_score": b""}),
    ("Search", {"function_chains": [b""]}),
    ("Search", {"sub_reqs": [b""]}),
    ("Search", {"travel_timestamp": 1}),
    ("HybridSearch", {"requests": [{"dsl": "true) or (true", "dsl_type": EXPRESSION}]}),
    ("HybridSearch", {"requests": [{"search_by_primary_keys": True}]}),
    ("HybridSearch", {"function_score": b""}),
    ("Query", {"expr": "true) or (true"}),
    ("Query", {"output_fields": ["count(*)"]}),
]


def test_a_search_that_cannot_be_filtered_gets_another_row() -> None:
    for method, more in UNFILTERED:
        asked = Asked(table(), method, C | more)
        assert not asked.route.filters_documents, (method, more)
        assert asked.plan().body is None
    # Without levels, no search has anything to filter.
    assert not Asked(Table(), "Search", C).route.filters_documents
    assert Asked(table(), "Search", C).plan(EVERYTHING) == ForwardPlan()


def paged(token: str = "") -> dict[str, Any]:
    parameters = [{"key": "search_iter_v2", "value": "True"}]
    parameters += [{"key": "search_iter_id", "value": token}] if token else []
    return C | {"search_params": parameters}


@pytest.mark.parametrize("visibility", [MARKED_VISIBILITY, EVERYTHING])
async def test_a_page_is_for_the_user_and_the_sources_of_the_first(visibility: Visibility) -> None:
    one = table()
    results = {"search_iterator_v2_results": {"token": "next", "last_bound": 0.5}}
    raw = RESPONSES["SearchResults"].encode({"results": results})
    with pytest.raises(Unresolved, match="not issued through this sidecar"):
        await Asked(one, "Search", paged("next")).sources()
    read = Asked(one, "Search", paged()).plan(visibility).filter_response
    assert read is not None
    found = RESPONSES["SearchResults"].decode(read(FetchedResponse(200, "", [], raw)).body).values
    assert found["results"]["search_iterator_v2_results"] == results["search_iterator_v2_results"]
    # The token adds what it stands for to what the call names.
    other = paged("next") | {"collection_name": "other"}
    assert await Asked(one, "Search", other).sources() == [
        "milvus://kb/default/other", "milvus://kb/default/open_docs",
    ]  # fmt: skip
    with pytest.raises(Unresolved, match="another user"):
        await Asked(one, "Search", paged("next")).sources(Attribution("eve", None, None, None))
