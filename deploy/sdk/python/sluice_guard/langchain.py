"""Wraps a retriever of LangChain, so that each retrieval is checked first."""

from __future__ import annotations

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from sluice_guard.decisions import NotAllowed, Sensitivity
from sluice_guard.gate import require
from sluice_guard.guard import Guard


class GuardedRetriever(BaseRetriever):
    """A retriever that asks Sluice before each retrieval. `Guard.retriever` creates it."""

    guard: Guard
    retriever: BaseRetriever
    source: str
    sensitivity: Sensitivity = "critical"
    answer: bool = False

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        try:
            decision = self.guard.check(
                self.source, self.sensitivity, query=query, source_type="langchain"
            )
            require(self.source, decision)
        except NotAllowed as refusal:
            return self._instead(refusal)
        return self.retriever.invoke(query, config={"callbacks": run_manager.get_child()})

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        try:
            decision = await self.guard.acheck(
                self.source, self.sensitivity, query=query, source_type="langchain"
            )
            require(self.source, decision)
        except NotAllowed as refusal:
            return self._instead(refusal)
        return await self.retriever.ainvoke(query, config={"callbacks": run_manager.get_child()})

    def _instead(self, refusal: NotAllowed) -> list[Document]:
        if not self.answer:
            raise refusal
        return [Document(str(refusal), metadata={"source": self.source, "allowed": False})]
