"""What Pinecone's own documentation shows first, over gRPC, in the words of its clients 8.1.2 and
10.2. As a program it runs beside the former, and prints what it read as JSON:

    python quick_start.py ADDRESS NAMESPACE
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pinecone.grpc
from pinecone.grpc import PineconeGRPC

VECTORS = [{"id": "9", "values": [1.0, 0.5], "metadata": {"text": "nine"}}]


def opened(address: str) -> Any:
    """The index at this address, in plain text."""
    config = getattr(pinecone.grpc, "GRPCClientConfig", None)
    if config is None:
        made = PineconeGRPC(api_key="key", grpc_scheme="http")
        return made.Index(host=f"http://{address}")
    plain = config(secure=False)
    return PineconeGRPC(api_key="key").Index(host=address, grpc_config=plain)


def read(address: str, namespace: str) -> dict[str, Any]:
    """Write, search and list."""
    index, named = opened(address), {"namespace": namespace}
    searched = index.query(vector=[1.0, 0.5], top_k=3, include_metadata=True, **named)
    fetched = index.fetch(ids=["1"], **named)
    by_metadata = index.fetch_by_metadata(filter={"level": {"$eq": "low"}}, **named)
    stats = index.describe_index_stats()
    return {
        "upserted": index.upsert(vectors=VECTORS, **named).upserted_count,
        "query": [[each.id, each.score, dict(each.metadata)] for each in searched.matches],
        "query by id": len(index.query(id="1", top_k=3, **named).matches),
        "fetch": {key: dict(each.metadata) for key, each in fetched.vectors.items()},
        "fetch by metadata": sorted(by_metadata.vectors),
        "list": [each.id for each in index.list_paginated(**named).vectors],
        "stats": {key: each.vector_count for key, each in stats.namespaces.items()},
        "total": stats.total_vector_count,
        "namespaces": [each.name for each in index.list_namespaces_paginated().namespaces],
        "namespace": index.describe_namespace(**named).name,
    }


if __name__ == "__main__":
    print(json.dumps(read(*sys.argv[1:])))
