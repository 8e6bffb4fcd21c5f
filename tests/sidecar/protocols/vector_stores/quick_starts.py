"""The quick starts of LangChain's and LlamaIndex's vector stores: open a store, add texts, search,
sync and async. As a program it runs in the environment `vector_stores` (LlamaIndex's for Milvus in
`llama_milvus`), and prints what they found as JSON:

    python quick_starts.py FRAMEWORK STORE PORT GRPC_PORT NAME

`NAME` is a collection or a namespace. gRPC is used wherever the framework's package offers it.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

HOST = "127.0.0.1"
TEXTS = ["a text of one", "and a longer text of two"]
IDS = [f"0000000{n}-0000-4000-8000-00000000000f" for n in (1, 2)]
QUERY = "text of"


def embedded(text: str) -> list[float]:
    """A text's length and words, in place of a model."""
    return [float(len(text)), float(text.count(" "))]


class Place:
    """Where a store is, and the collection or namespace to use in it."""

    def __init__(self, port: str, grpc_port: str, name: str) -> None:
        self.ports: dict[str, Any] = {"port": int(port), "grpc_port": int(grpc_port)}
        self.name = name

    def qdrant(self, kind: Any) -> Any:
        """A client of Qdrant; `kind` is its class."""
        return kind(host=HOST, prefer_grpc=True, check_compatibility=False, **self.ports)

    @asynccontextmanager
    async def weaviate(self) -> AsyncIterator[tuple[Any, Any]]:
        """Weaviate's clients, sync and async."""
        import weaviate

        with weaviate.connect_to_local(HOST, **self.ports) as client:
            async with weaviate.use_async_with_local(HOST, **self.ports) as client_async:
                yield client, client_async

    def pinecone(self) -> Any:
        """An index of Pinecone over gRPC."""
        import pinecone.grpc

        # Not the client of the project's lock, which has other classes.
        older: Any = pinecone.grpc
        plain = older.GRPCClientConfig(secure=False)
        address = f"{HOST}:{self.ports['grpc_port']}"
        return older.PineconeGRPC(api_key="key").Index(host=address, grpc_config=plain)


async def langchain(store: str, place: Place) -> list[Any]:
    from langchain_core.embeddings import Embeddings

    class Counting(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [embedded(text) for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return embedded(text)

    def shown(found: Any) -> list[Any]:
        return [[each.page_content, each.metadata, score] for each, score in found]

    async def used(sync: Any, asynchronous: Any, **adding: Any) -> list[Any]:
        pages = [{"page": 1}, {"page": 2}]
        return [
            sync.add_texts(TEXTS, pages, ids=IDS, **adding),
            shown(sync.similarity_search_with_score(QUERY, k=2)),
            [each.page_content for each in sync.as_retriever().invoke(QUERY)],
            await asynchronous.aadd_texts(TEXTS, pages, ids=IDS),
            shown(await asynchronous.asimilarity_search_with_score(QUERY, k=1)),
        ]

    if store == "qdrant":
        from langchain_qdrant import QdrantVectorStore

        made = QdrantVectorStore.from_texts(
            TEXTS, Counting(), ids=IDS, collection_name=place.name, host=HOST, prefer_grpc=True,
            check_compatibility=False, **place.ports,
        )  # fmt: skip
        return await used(made, made)
    if store == "weaviate":
        from langchain_weaviate import WeaviateVectorStore

        async with place.weaviate() as (client, client_async):
            made = WeaviateVectorStore(
                client, place.name, "title", Counting(), client_async=client_async
            )
            return await used(made, made)
    from langchain_pinecone import PineconeVectorStore

    # Its asynchronous calls take an index over REST alone, and its sets of calls that run side by
    # side are not those of gRPC.
    own = {"embedding": Counting(), "namespace": place.name}
    over_grpc = PineconeVectorStore(place.pinecone(), **own)
    address = f"http://{HOST}:{place.ports['port']}"
    over_rest = PineconeVectorStore(host=address, pinecone_api_key="key", **own)
    return await used(over_grpc, over_rest, async_req=False)


async def llama_index(store: str, place: Place) -> list[Any]:
    from llama_index.core.schema import TextNode
    from llama_index.core.vector_stores import VectorStoreQuery

    def shown(found: Any) -> list[Any]:
        return [[each.text, each.metadata] for each in found.nodes] + [found.similarities]

    async def used(sync: Any, asynchronous: Any) -> list[Any]:
        nodes = [
            TextNode(id_=key, text=text, metadata={"page": 1}, embedding=embedded(text))
            for key, text in zip(IDS, TEXTS, strict=True)
        ]
        query = VectorStoreQuery(embedded(QUERY), similarity_top_k=2, query_str=QUERY)
        return [
            sync.add(nodes),
            shown(sync.query(query)),
            await asynchronous.async_add(nodes),
            shown(await asynchronous.aquery(query)),
        ]

    if store == "qdrant":
        from llama_index.vector_stores.qdrant import QdrantVectorStore
        from qdrant_client import AsyncQdrantClient, QdrantClient

        made = QdrantVectorStore(
            place.name, place.qdrant(QdrantClient), place.qdrant(AsyncQdrantClient)
        )
        return await used(made, made)
    if store == "weaviate":
        from llama_index.vector_stores.weaviate import WeaviateVectorStore

        async with place.weaviate() as clients:
            pair = [
                WeaviateVectorStore(each, index_name=place.name, text_key="title")
                for each in clients
            ]
            return await used(*pair)
    if store == "milvus":
        from llama_index.vector_stores.milvus import MilvusVectorStore

        made = MilvusVectorStore(
            f"http://{HOST}:{place.ports['port']}", collection_name=place.name, dim=2,
            upsert_mode=True,
        )  # fmt: skip
        return await used(made, made)
    from llama_index.vector_stores.pinecone import PineconeVectorStore

    made = PineconeVectorStore(place.pinecone(), namespace=place.name)
    return await used(made, made)


FRAMEWORKS = {"langchain": langchain, "llama_index": llama_index}

if __name__ == "__main__":
    framework, named, *where = sys.argv[1:]
    print(json.dumps(asyncio.run(FRAMEWORKS[framework](named, Place(*where))), default=str))
