"""MCP's own conformance suite, run against a server straight and through the sidecar: each check of
each scenario has the same result, or the difference is listed.

Skipped if npm's package or Node is missing (`tests/servers.py`).
"""

import asyncio
import json
from pathlib import Path

import pytest

from tests import servers
from tests.sidecar.protocols.mcp import conformance_server
from tests.sidecar.protocols.mcp.server import listening_server
from tests.support.proxy import listening, sidecar, source

SCENARIOS = 32
DIFFERENCES: dict[str, str] = {}
"""The scenarios whose result differs, each with the reason."""

Checks = dict[str, list[tuple[str, str]]]
"""By scenario, the id and the status of each check."""


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/mcp/test_routes.py::test_an_allowed_call_gets_the_server_s_own_answer"
)
async def test_the_conformance_suite_finds_the_same_through_the_sidecar(tmp_path: Path) -> None:
    suite, node = servers.need("mcp-conformance"), servers.need("node")
    with listening_server(conformance_server.app()) as port:
        async with (
            sidecar(tmp_path) as made,
            listening(made, source(port, "mcp", sensitivity="low")) as through,
        ):
            command = [str(node), str(suite), "server", "--suite", "all"]
            straight = await checks(command, port, tmp_path / "straight")
            governed = await checks(command, through, tmp_path / "through")
            decided = await made.decisions()
    assert len(straight) == len(governed) == SCENARIOS
    # The server passes nearly all: what fails on both sides shows nothing.
    passed = [name for name, found in straight.items() if not any("FAIL" in s for _, s in found)]
    assert len(passed) >= SCENARIOS - 1
    different = {name for name in straight if straight[name] != governed[name]}
    assert different == DIFFERENCES.keys(), {
        name: (straight[name], governed[name]) for name in different
    }
    assert ("ALLOW", "analysts-read", "mcp://kb/tool/test_simple_text") in decided


async def checks(command: list[str], port: int, folder: Path) -> Checks:
    """What the suite finds of the server at `port`."""
    process = await asyncio.create_subprocess_exec(
        *command,
        "--url",
        f"http://127.0.0.1:{port}/mcp",
        "--output-dir",
        str(folder),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 240)
    found: Checks = {}
    for path in sorted(folder.glob("**/checks.json")):
        # The folder's name ends in the time.
        name = path.parent.name.partition("-2")[0].removeprefix("server-")
        found[name] = [(each["id"], each["status"]) for each in json.loads(path.read_text())]
    assert found, output.decode()
    return found
