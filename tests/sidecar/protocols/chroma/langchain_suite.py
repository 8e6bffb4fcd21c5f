"""LangChain's standard tests of vector stores, for its Chroma package on the port `SUITE_PORT`.

Run by `test_langchain_suite.py` in a process of its own: no run collects this file by itself.
"""

import os
from collections.abc import Iterator

import chromadb
import pytest
from langchain_chroma import Chroma
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests.vectorstores import VectorStoreIntegrationTests


class TestChroma(VectorStoreIntegrationTests):
    """The client and the server are apart, and only the port tells who answers."""

    @pytest.fixture
    def vectorstore(self) -> Iterator[VectorStore]:
        """An empty collection, deleted at the end."""
        client = chromadb.HttpClient("127.0.0.1", int(os.environ["SUITE_PORT"]))
        name = f"suite_{os.urandom(6).hex()}"
        store = Chroma(name, self.get_embeddings(), client=client)
        try:
            yield store
        finally:
            store.delete_collection()
