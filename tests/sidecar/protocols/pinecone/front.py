"""What the tests of Pinecone share: policies, levels, a query, and Pinecone's own client."""

from typing import Any

import pinecone

from tests.support.proxy import policy

OPEN = policy(denied_sources=("pinecone://kb/shut", "pinecone://kb/*/shut"))
READERS = policy(max_sensitivity="medium")
MARKED = {"sensitivity_field": "level", "sensitivity": "low"}
LEVELS = ("low", "high", "medium", None, "Low", ["low", "critical"], "critical")
MINE = {"level": {"$in": ["low", "medium"]}}
Q = {"vector": [1.0, 0.1], "topK": 10}
DOCUMENTS = "/namespaces/open/documents"


def index(port: int) -> Any:
    return pinecone.Pinecone(api_key="key").Index(host=f"http://127.0.0.1:{port}")
