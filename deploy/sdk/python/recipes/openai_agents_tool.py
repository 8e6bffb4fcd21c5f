"""OpenAI Agents SDK: tools that need an ALLOW. `pip install ./deploy/sdk/python openai-agents`

A scripted model takes the place of your own; without `model=`, the SDK calls OpenAI's.
"""

import asyncio
import json
import os
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from sluice_guard import Guard, acting

set_tracing_disabled(True)  # it would send traces to OpenAI
guard = Guard.from_environ(os.environ)
ran: list[str] = []


# The SDK hides an exception's text from the model, so a denial is the tool's answer.
@function_tool
@guard.tool(source=lambda collection: collection, sensitivity="medium", answer=True)
async def search(collection: str) -> str:
    """Search a collection: handbook or payroll."""
    ran.append(collection)
    return f"found in {collection}: leave is 30 days"


class Scripted(Model):
    """A stand-in for a model: calls the tool with the last word of the message, and repeats the
    result."""

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        given = kwargs.get("input", args[1] if len(args) > 1 else "")
        last = given if isinstance(given, str) else given[-1]
        if isinstance(last, dict) and last.get("type") == "function_call_output":
            text = ResponseOutputText(
                text=f"The tool said: {last['output']}", type="output_text", annotations=[]
            )
            said = ResponseOutputMessage(
                id="m-1", content=[text], role="assistant", status="completed", type="message"
            )
            return ModelResponse(output=[said], usage=Usage(), response_id=None)
        asked = last if isinstance(last, str) else str(last["content"])
        call = ResponseFunctionToolCall(
            call_id="call-1",
            name="search",
            arguments=json.dumps({"collection": asked.split()[-1]}),
            type="function_call",
        )
        return ModelResponse(output=[call], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


agent = Agent(name="clerk", instructions="Look things up.", tools=[search], model=Scripted())


async def main() -> None:
    with acting(user="ann", session="openai-1"):
        print("ALLOW:", (await Runner.run(agent, "Look into handbook")).final_output)
        print("DENY:", (await Runner.run(agent, "Look into payroll")).final_output)
    print("ran:", ran)


asyncio.run(main())
