"""The protocols that are spoken, by the name of their kind. Each is loaded when a source of its
kind is configured, and not before: some stand on large libraries."""

from collections.abc import Callable
from importlib import import_module

from sidecar.protocols.protocol import Dialect
from sidecar.settings import Source

MODULES = {
    "bedrock": "sidecar.protocols.bedrock:Bedrock",
    "chroma": "sidecar.protocols.chroma:Chroma",
    "mcp": "sidecar.protocols.mcp:Mcp",
    "opensearch": "sidecar.protocols.opensearch.dialect:OpenSearch",
    "pinecone": "sidecar.protocols.pinecone:Pinecone",
    "qdrant": "sidecar.protocols.qdrant:Qdrant",
    "rest": "sidecar.protocols.rest:Rest",
    "s3": "sidecar.protocols.s3:S3",
    "tcp": "sidecar.protocols.tcp:Tcp",
    "weaviate": "sidecar.protocols.weaviate:Weaviate",
}


def dialect_of(source: Source, monotonic: Callable[[], float]) -> Dialect:
    """The protocol of `source`, knowing nothing yet of what is there."""
    module, _, name = MODULES[source.kind].partition(":")
    dialect: Dialect = getattr(import_module(module), name)(source, monotonic)
    return dialect
