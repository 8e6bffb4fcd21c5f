"""LangChain: a retriever that needs an ALLOW. `pip install ./deploy/sdk/python langchain-core`

Stand-ins take the place of your own retriever and model: any `BaseRetriever` and any chat model
will do.
"""

import asyncio
import os

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnablePassthrough

from sluice_guard import Denied, Guard, acting

guard = Guard.from_environ(os.environ)


class Shelf(BaseRetriever):
    """A stand-in for a retriever: returns one document, and counts the queries."""

    text: str
    asked: int = 0

    def _get_relevant_documents(self, query: str, **_: object) -> list[Document]:
        self.asked += 1
        return [Document(self.text)]


class Scripted(BaseChatModel):
    """A stand-in for a model: repeats what it read."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *_: object, **__: object) -> ChatResult:
        answer = AIMessage(f"I read this: {messages[-1].content}")
        return ChatResult(generations=[ChatGeneration(message=answer)])


def chain(retriever: BaseRetriever) -> Runnable[str, AIMessage]:
    prompt = ChatPromptTemplate.from_template("{documents}\n\nQuestion: {question}")
    return {"documents": retriever, "question": RunnablePassthrough()} | prompt | Scripted()


handbook, payroll = Shelf(text="Leave is 30 days."), Shelf(text="Ann earns 9000.")
allowed = guard.retriever(handbook, "handbook", "medium")
denied = guard.retriever(payroll, "payroll", "medium")
explained = guard.retriever(payroll, "payroll", "medium", answer=True)

with acting(user="ann", session="langchain-1"):
    print("ALLOW:", chain(allowed).invoke("How long is leave?").content)
    print("ALLOW:", asyncio.run(chain(allowed).ainvoke("How long is leave?")).content)
    try:
        chain(denied).invoke("What does Ann earn?")
    except Denied as refusal:
        print("DENY:", refusal)
    print("DENY:", chain(explained).invoke("What does Ann earn?").content)
    print("DENY:", asyncio.run(chain(explained).ainvoke("What does Ann earn?")).content)
print("asked:", handbook.asked, payroll.asked)
