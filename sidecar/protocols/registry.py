"""Maps each kind of source to its protocol. A protocol is imported only when a source of its kind
is configured: some of them import large libraries."""

from collections.abc import Callable
from importlib import import_module

from sidecar.protocols.protocol import SourceProtocol
from sidecar.settings.model import Kind, Source

MODULES: dict[Kind, str] = {
    "bedrock": "sidecar.protocols.bedrock.routes:Bedrock",
    "chroma": "sidecar.protocols.chroma.routes:Chroma",
    "mcp": "sidecar.protocols.mcp.routes:Mcp",
    "milvus": "sidecar.protocols.milvus.routes:Milvus",
    "opensearch": "sidecar.protocols.opensearch.protocol:OpenSearch",
    "pinecone": "sidecar.protocols.pinecone.routes:Pinecone",
    "postgres": "sidecar.protocols.rest:Unread",
    "qdrant": "sidecar.protocols.qdrant.routes:Qdrant",
    "rest": "sidecar.protocols.rest:Rest",
    "s3": "sidecar.protocols.s3.routes:S3",
    "tcp": "sidecar.protocols.rest:Unread",
    "weaviate": "sidecar.protocols.weaviate.routes:Weaviate",
}


def load_protocol(source: Source, monotonic: Callable[[], float]) -> SourceProtocol:
    """Return a new protocol object for `source`, which has learnt nothing about the source yet."""
    # The settings have checked the kind, so a missing one is a mistake in this table.
    module, _, name = MODULES[source.kind].partition(":")
    protocol: SourceProtocol = getattr(import_module(module), name)(source, monotonic)
    return protocol
