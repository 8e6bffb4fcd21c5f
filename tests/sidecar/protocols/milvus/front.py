"""What the tests of Milvus share: policies, levels and requests of the REST API."""

from typing import Any

from tests.support.proxy import policy

OPEN = policy(allowed_sources=("milvus://kb/default/open*",))
READERS = policy(max_sensitivity="medium")
MARKED: dict[str, Any] = {"sensitivity_field": "level", "sensitivity": "low"}
LEVELS = ("low", "high", "medium", None, "Low", ["low", "critical"], "critical")
LOOKUP = "POST /v2/vectordb/aliases/describe"
SEARCH = "/v2/vectordb/entities/search"
HYBRID = "/v2/vectordb/entities/hybrid_search"
QUERY = "/v2/vectordb/entities/query"
MINE = 'level in ["low", "medium"]'


def q(collection: str = "open_docs", **more: Any) -> dict[str, Any]:
    return {"collectionName": collection, "data": [[1.0, 0.1]], "limit": 10, **more}
