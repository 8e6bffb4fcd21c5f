"""LangGraph: tools that need an ALLOW. `pip install ./deploy/sdk/python langgraph`

A scripted model takes the place of your own: any chat model that calls tools will do.
"""

import asyncio
import os

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from sluice_guard import Guard, acting

guard = Guard.from_environ(os.environ)
ran: list[str] = []


def search(collection: str) -> str:
    """Search a collection: handbook or payroll."""
    ran.append(collection)
    return f"found in {collection}: leave is 30 days"


async def asearch(collection: str) -> str:
    """Search a collection: handbook or payroll."""
    return search(collection)


# The guard stands next to the function, below `tool`. The source is what the model asks for.
guarded = guard.tool(
    search, source=lambda collection: collection, sensitivity="medium", answer=True
)
aguarded = guard.tool(
    asearch, source=lambda collection: collection, sensitivity="medium", answer=True
)


class Scripted(BaseChatModel):
    """A stand-in for a model: calls the tool with the last word of the message, and repeats the
    result."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *_: object, **__: object) -> ChatResult:
        last = messages[-1]
        if isinstance(last, ToolMessage):
            answer = AIMessage(f"The tool said: {last.content}")
        else:
            arguments = {"collection": str(last.content).split()[-1]}
            call = {"name": "search", "args": arguments, "id": "call-1", "type": "tool_call"}
            answer = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=answer)])


graph = StateGraph(MessagesState)
graph.add_node("model", lambda state: {"messages": [Scripted().invoke(state["messages"])]})
graph.add_node("tools", ToolNode([tool("search", guarded)]))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")
agent = graph.compile()


def ask(question: str) -> str:
    return str(agent.invoke({"messages": [("user", question)]})["messages"][-1].content)


with acting(user="ann", session="langgraph-1"):
    print("ALLOW:", ask("Look into handbook"))
    print("DENY:", ask("Look into payroll"))
    print("DENY:", asyncio.run(tool("search", aguarded).ainvoke({"collection": "payroll"})))
print("ran:", ran)
