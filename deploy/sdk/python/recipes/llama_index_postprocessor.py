"""LlamaIndex: nodes that need an ALLOW. `pip install ./deploy/sdk/python llama-index-core`

Stand-ins take the place of your own retriever and model: any retriever and any LLM will do.
"""

import asyncio
import os
from typing import Any

from llama_index.core import get_response_synthesizer
from llama_index.core.llms import CompletionResponse, CompletionResponseGen, CustomLLM, LLMMetadata
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from sluice_guard import Denied, Guard, acting

guard = Guard.from_environ(os.environ)


class Shelf(BaseRetriever):
    """A stand-in for a retriever: returns one node from each collection."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        texts = {"handbook": "Leave is 30 days.", "payroll": "Ann earns 9000."}
        return [
            NodeWithScore(node=TextNode(text=text, metadata={"collection": name}), score=1.0)
            for name, text in texts.items()
        ]


class Scripted(CustomLLM):
    """A stand-in for a model: repeats what it read."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="scripted")

    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        return CompletionResponse(text=f"I read this: {prompt}")

    def stream_complete(
        self, prompt: str, formatted: bool = False, **_: Any
    ) -> CompletionResponseGen:
        yield self.complete(prompt)


def engine(*, answer: bool) -> RetrieverQueryEngine:
    # Each node is judged as its own collection. A text instead stands for all of them.
    checked = guard.node_postprocessor(
        lambda node: node.metadata["collection"], "medium", answer=answer
    )
    return RetrieverQueryEngine(
        retriever=Shelf(),
        response_synthesizer=get_response_synthesizer(llm=Scripted()),
        node_postprocessors=[checked],
    )


with acting(user="ann", session="llama-1"):
    try:
        engine(answer=False).query("What does Ann earn, and how long is leave?")
    except Denied as refusal:
        print("DENY:", refusal)
    # The handbook's node and, for those of payroll, one that says why they are not there.
    print("BOTH:", engine(answer=True).query("What does Ann earn, and how long is leave?"))
    print("BOTH:", asyncio.run(engine(answer=True).aquery("What does Ann earn?")))
