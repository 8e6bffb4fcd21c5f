"""CrewAI: tools that need an ALLOW. `pip install ./deploy/sdk/python crewai`

A scripted model takes the place of your own; `llm="openai/…"` would be one of OpenAI's.
"""

import json
import os
from typing import Any

from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import tool

from sluice_guard import Guard, acting

guard = Guard.from_environ(os.environ)
ran: list[str] = []


@tool("search")
@guard.tool(source=lambda collection: collection, sensitivity="medium", answer=True)
def search(collection: str) -> str:
    """Search a collection: handbook or payroll."""
    ran.append(collection)
    return f"found in {collection}: leave is 30 days"


# A cached answer would be given again without asking Sluice.
search.cache_function = lambda _arguments, _result: False


class Scripted(BaseLLM):
    """A stand-in for a model: calls the tool with the collection named in the task, and repeats the
    result."""

    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        said = [str(each["content"]) for each in messages if each["role"] == "assistant"]
        if said:
            observed = said[-1].rpartition("Observation:")[2].strip()
            return f"Thought: I now know\nFinal Answer: The tool said: {observed}"
        told = str(messages[-1]["content"])
        arguments = {"collection": "payroll" if "Look into payroll" in told else "handbook"}
        return f"Thought: I look\nAction: search\nAction Input: {json.dumps(arguments)}"

    def supports_function_calling(self) -> bool:
        return False


def ask(question: str) -> str:
    clerk = Agent(
        role="clerk",
        goal="look things up",
        backstory="a clerk",
        tools=[search],
        llm=Scripted(model="scripted"),
    )
    task = Task(description=question, expected_output="what was found", agent=clerk)
    return str(Crew(agents=[clerk], tasks=[task]).kickoff())


with acting(user="ann", session="crewai-1"):
    print("ALLOW:", ask("Look into handbook"))
    print("DENY:", ask("Look into payroll"))
print("ran:", ran)
