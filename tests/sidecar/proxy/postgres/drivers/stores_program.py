"""Fills or reads a store on PostgreSQL, and prints what it found as JSON. It runs on the libraries
of the environment `sql_stores`.

    python stores_program.py langchain_vectors|langchain_sql|llama_index fill|read ADDRESS
"""

from __future__ import annotations

import json
import sys
from typing import Any

TEXTS = {
    "printer": "The printer on floor 3 is out of paper.",
    "paper": "Paper is refilled from the store room.",
    "coffee": "The coffee machine needs water.",
    "door": "The door on floor 1 does not close.",
}
Found = list[tuple[str, str]]


def embedded(text: str) -> list[float]:
    """Return a vector of the text's letters: no model is needed to compare two searches."""
    small = text.lower()
    return [small.count(letter) / (1 + len(small)) for letter in "aeioprst"]


def langchain_vectors(place: dict[str, Any], *, fill: bool) -> Found:
    """LangChain's PGVector."""
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_postgres import PGVector

    class Letters(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [embedded(text) for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return embedded(text)

    # An agent's store is there already: it makes no extension.
    store = PGVector(
        embeddings=Letters(),
        collection_name="help",
        connection=_url(place, "psycopg"),
        create_extension=fill,
    )
    if fill:
        documents = [Document(text, metadata={"about": key}) for key, text in TEXTS.items()]
        store.add_documents(documents, ids=list(TEXTS))
        return []
    near = store.similarity_search_with_score("printer paper", k=3)
    filtered = store.similarity_search(
        "machine", k=2, filter={"about": {"$in": ["coffee", "door"]}}
    )
    diverse = store.max_marginal_relevance_search("paper", k=2, fetch_k=4)
    retriever = store.as_retriever(search_kwargs={"k": 1})
    return [
        ("near", str([(found.page_content, round(score, 6)) for found, score in near])),
        ("filtered", str([found.page_content for found in filtered])),
        ("diverse", str([found.page_content for found in diverse])),
        ("retrieved", str([found.metadata for found in retriever.invoke("door")])),
        ("by id", str([found.page_content for found in store.get_by_ids(["coffee"])])),
    ]


def langchain_sql(place: dict[str, Any], *, fill: bool) -> Found:
    """LangChain's SQLDatabase, and its toolkit's tools that need no model."""
    from langchain_community.tools.sql_database.tool import (
        InfoSQLDatabaseTool,
        ListSQLDatabaseTool,
        QuerySQLDatabaseTool,
    )
    from langchain_community.utilities import SQLDatabase

    if fill:
        return []
    tables = ["tickets", "articles"]
    database = SQLDatabase.from_uri(_url(place, "psycopg"), include_tables=tables)
    query = QuerySQLDatabaseTool(db=database)
    return [
        ("dialect", database.dialect),
        ("tables", ListSQLDatabaseTool(db=database).invoke("")),
        ("schema", InfoSQLDatabaseTool(db=database).invoke("tickets")),
        ("rows", query.invoke("SELECT id, title FROM tickets WHERE id < 4 ORDER BY id")),
        ("counted", query.invoke("SELECT status, count(*) FROM tickets GROUP BY 1 ORDER BY 1")),
        ("no column", query.invoke("SELECT nothing FROM tickets")),
        ("as dicts", str(database.run("SELECT 1 AS one", include_columns=True))),
    ]


def llama_index(place: dict[str, Any], *, fill: bool) -> Found:
    """LlamaIndex's PGVectorStore."""
    from llama_index.core.schema import TextNode
    from llama_index.core.vector_stores.types import (
        MetadataFilter,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
    )
    from llama_index.vector_stores.postgres import PGVectorStore

    store = PGVectorStore.from_params(
        host=place["host"],
        port=str(place["port"]),
        database=place["database"],
        user=place["user"],
        password=place["password"],
        table_name="help",
        embed_dim=8,
        hybrid_search=True,
        text_search_config="english",
        perform_setup=fill,
    )
    if fill:
        nodes = [
            TextNode(id_=key, text=text, embedding=embedded(text), metadata={"about": key})
            for key, text in TEXTS.items()
        ]
        store.add(nodes)
        return []
    shown: Found = []
    only = MetadataFilters(filters=[MetadataFilter(key="about", value="door")])
    for name, query in {
        "near": VectorStoreQuery(embedded("printer paper"), similarity_top_k=3),
        "filtered": VectorStoreQuery(embedded("floor"), similarity_top_k=3, filters=only),
        "hybrid": VectorStoreQuery(
            embedded("paper"),
            query_str="paper",
            similarity_top_k=2,
            mode=VectorStoreQueryMode.HYBRID,
        ),
    }.items():
        answer = store.query(query)
        shown.append(
            (name, str([answer.ids, [round(each, 6) for each in answer.similarities or ()]]))
        )
    nodes = store.get_nodes(node_ids=["coffee"])
    shown.append(("by id", str([node.get_content() for node in nodes])))
    store.close()
    return shown


def _url(place: dict[str, Any], driver: str) -> str:
    name = "{user}:{password}@{host}:{port}/{database}".format_map(place)
    return f"postgresql+{driver}://{name}"


if __name__ == "__main__":
    chosen, what, address = sys.argv[1:]
    stores = {each.__name__: each for each in (langchain_vectors, langchain_sql, llama_index)}
    print(json.dumps(stores[chosen](json.loads(address), fill=what == "fill")))
