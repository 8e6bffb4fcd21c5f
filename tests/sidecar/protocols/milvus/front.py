"""What the tests of Milvus share: policies, levels and requests of the REST API."""

from typing import Any

from tests.support.proxy import policy

OPEN = policy(
    denied_sources=(
        "milvus://kb/other*", "milvus://kb/default/shut*", "milvus://kb/default/open_docs/theirs",
    )
)  # fmt: skip
READERS = policy(max_sensitivity="medium")
MARKED: dict[str, Any] = {"sensitivity_field": "level", "sensitivity": "low"}
LEVELS = ("low", "high", "medium", None, "Low", ["low", "critical"], "critical")
V2 = "/v2/vectordb"
LOOKUP = f"POST {V2}/aliases/describe"
SEARCH = f"{V2}/entities/search"
HYBRID = f"{V2}/entities/hybrid_search"
QUERY = f"{V2}/entities/query"
MINE = 'level in ["low", "medium"]'


def q(collection: str = "open_docs", **more: Any) -> dict[str, Any]:
    return {"collectionName": collection, "data": [[1.0, 0.1]], "limit": 10, **more}
