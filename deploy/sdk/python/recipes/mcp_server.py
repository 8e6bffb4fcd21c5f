"""MCP Python SDK: a server's tools that need an ALLOW. `pip install ./deploy/sdk/python mcp`

The client takes the place of an agent's; it connects to the server in the same process, as a test
may.
"""

import asyncio
import os

from mcp import Client
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from sluice_guard import Guard, acting

guard = Guard.from_environ(os.environ)
server = MCPServer("archive")
ran: list[str] = []


# A `ToolError` is how a tool of MCP answers with an error: the model reads its text, whatever type
# the tool returns otherwise. Of any other exception it reads nothing.
@server.tool()
@guard.tool(source=lambda collection: collection, sensitivity="medium", answer=ToolError)
async def search(collection: str) -> list[str]:
    """Search a collection: handbook or payroll."""
    ran.append(collection)
    return [f"found in {collection}", "leave is 30 days"]


async def main() -> None:
    with acting(user="ann", session="mcp-1"):
        async with Client(server) as client:
            allowed = await client.call_tool("search", {"collection": "handbook"})
            print("ALLOW:", allowed.structured_content)
            denied = await client.call_tool("search", {"collection": "payroll"})
            print("DENY:", denied.is_error, denied.content[0].text)
    print("ran:", ran)


asyncio.run(main())
