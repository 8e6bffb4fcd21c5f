"""What the tests of Qdrant share: a policy, a request and the real client."""

from qdrant_client import QdrantClient

from tests.support.proxy import policy

OPEN = policy(allowed_sources=("qdrant://kb/open*",))
QUERY = {"query": [1.0, 0.1], "with_payload": True}
SHUT = {"collection": "shut_docs"}


def client(port: int) -> QdrantClient:
    # Its check of the server's version runs in a thread that outlives a test.
    return QdrantClient(url=f"http://127.0.0.1:{port}", timeout=10, check_compatibility=False)
