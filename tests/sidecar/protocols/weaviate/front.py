"""What the tests of Weaviate share: a policy, requests and the real client."""

import re
from typing import Any

import weaviate

from tests.sidecar.protocols.minimal import Minimal
from tests.support.proxy import policy

OPEN = policy(allowed_sources=("weaviate://kb/Open*",))
ID = "00000001-0000-4000-8000-000000000000"
LOOKUP = "GET /v1/aliases"


def q(query: str, **more: Any) -> dict[str, Any]:
    return {"query": query, **more}


def arrived(front: Minimal) -> list[str]:
    """The requests that arrived, without the look-ups of names."""
    return [line for line in front.lines if not re.match(LOOKUP + r"|GET /v1/schema/\w+\Z", line)]


def client(port: int) -> weaviate.WeaviateClient:
    # The client searches by gRPC, which the sidecar does not carry: GraphQL and REST remain.
    connected = weaviate.WeaviateClient(
        weaviate.connect.ConnectionParams.from_params(
            "127.0.0.1", port, False, "127.0.0.1", 9, False
        ),
        skip_init_checks=True,
    )
    connected.connect()
    return connected
