"""`deploy/README.md`, "Your app in ten lines": an own Chroma and MCP server, an own agent, and
every line as it is written."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from policies.definitions.model import Policy
from policies.sets.role import compile_role
from sidecar.config.help import example
from tests.architecture.tree import ROOT
from tests.support.documents import commands, paste, put
from tests.support.ports import free_port
from tests.support.stack import Service, Stack, call
from tests.support.waiting import AWAY, until

PAGE = "deploy/README.md"
README = (ROOT / PAGE).read_text()
SECTION = README.partition("\n## Your app in ten lines\n")[2].partition("\n## ")[0]
BLOCKS = dict(re.findall(r"^```\w+\n# ([^\n]*)\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL))


def test_the_page_s_policy_names_the_sources_that_its_sidecar_records() -> None:
    written = BLOCKS["sidecar.yaml, as it was written"]
    upstream = re.findall(r"--example minimal --upstream (\S+) ", BLOCKS["your sidecar's file"])
    assert example("minimal", {}, *upstream).partition("\n")[2] == written
    assert upstream[0].endswith(re.findall(r"port=(\d+)", BLOCKS["save as my_data.py"])[0])
    sidecar, policy = yaml.safe_load(written), yaml.safe_load(BLOCKS["save as my-app.yaml"])
    (source,) = sidecar["sources"]
    role = compile_role(
        policy["agent_role"], [Policy.from_wire({**policy, "policy_id": "", "version": 0})]
    )
    (clause,) = role.clauses
    assert clause.allows(f"chroma://{source['alias']}/default_tenant/default_database/handbook")
    assert sidecar["agent"]["role"] == role.name
    assert f"port={source['listen'].partition(':')[2]}" in BLOCKS["save as my_app.py"]
    script = BLOCKS["your app"] + BLOCKS["your sidecar's file"] + BLOCKS["your sidecar"]
    assert f"--id {sidecar['agent']['id']} --role {role.name}\n" in script
    assert f"--agent {sidecar['agent']['id']} --out {sidecar['agent']['key_file']}\n" in script
    # What the page leaves in a clone, git does not offer to commit.
    names = [title.removeprefix("save as ") for title in BLOCKS if title.startswith("save as ")]
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert [name for name in names if not any(fnmatch(f"/{name}", each) for each in ignored)] == []
    assert f"--port {sidecar['listen'].partition(':')[2]}\n" in script
    for name in (sidecar["key_file"], sidecar["agent"]["key_file"]):
        assert f"--out {name}\n" in script


@pytest.mark.deep(stands_in="test_the_page_s_policy_names_the_sources_that_its_sidecar_records")
def test_the_page_leads_from_an_own_chroma_to_an_allow_and_a_deny(tmp_path: Path) -> None:
    ports = {shown: free_port() for shown in ("8001", "8720", "9000", "18720", "18721")}
    started = [_chroma(tmp_path, ports["8001"])]
    stack = Stack(tmp_path)
    try:
        stack.start_control()
        ports["8700"] = stack.control.port
        folder = _folder(tmp_path, stack, ports)
        program = [sys.executable, str(folder / "my_tools.py")]
        tools = Service("tools", program, {}, tmp_path / "tools.log", ports["9000"])
        started.append(tools)
        tools.start(ready=False)
        until("it listens", lambda: _listens(ports["9000"]), despite=AWAY)
        # At the end the agent runs once more, without its MCP server.
        script = f"{_moved(_script(), ports)}\nkill -9 {tools.pid}\npython my_agent.py"
        done = paste(script, folder, _environ(tmp_path))
        assert done.returncode == 0, done.stdout + done.stderr
        # Without a sidecar, which the script's end has stopped: no denial, and it says so.
        away = paste("python my_agent.py", folder, _environ(tmp_path))
        _save_calls_alone(folder)
        alone = paste("python my_calls.py", folder, _environ(tmp_path))
    finally:
        stack.stop()
        for service in started:
            service.kill()
    assert (away.returncode, "Could not connect to a Chroma server" in away.stderr) == (1, True)
    assert re.match(r"No connection: (httpx\.)?ConnectError\(", alone.stdout), alone
    assert "ALLOW handbook 1\n" in done.stdout
    denied = re.search(r"^DENY payroll (.*)$", done.stdout, re.MULTILINE)
    assert denied is not None
    assert "is not in `allowed_sources` of policy `my-app-reads`" in denied[1]
    assert re.search(r" \(event [0-9a-f-]{36}\)$", denied[1])
    listed = done.stdout.partition(denied[0])[2]
    root = "chroma://db/default_tenant/default_database"
    assert f"{root}/handbook" in listed
    assert f"{root}/payroll" in listed
    _check_answers(listed)


def _check_answers(listed: str) -> None:
    """What the agent of LangChain and MCP printed, first with its MCP server and then without."""
    # A denial is what its tools answer.
    told = re.findall(r"^(handbook|payroll|mcp search|mcp salary) (.*)$", listed, re.MULTILINE)
    answered, later = dict(told[:4]), dict(told[4:])
    assert answered["handbook"] == later["handbook"]
    failed = "The call failed: the data source `tools` can't be reached"
    assert all(later[each].startswith(failed) for each in ("mcp search", "mcp salary")), later
    assert answered.keys() == {"handbook", "payroll", "mcp search", "mcp salary"}
    assert answered["handbook"] == "success of the handbook"
    assert answered["mcp search"] == "found leave"
    assert answered["payroll"].startswith("error Access was denied")
    assert answered["mcp salary"].startswith("Access was denied")
    for name, policy in (("payroll", "my-app-reads"), ("mcp salary", "my-app-tools")):
        reason = rf"is not in `allowed_sources` of policy `{policy}` \(event [0-9a-f-]{{36}}\)"
        assert re.search(reason, answered[name]), answered[name]


def _save_calls_alone(folder: Path) -> None:
    """Save a program with the agent's call of an MCP tool, and nothing of Chroma."""
    agent = (folder / "my_agent.py").read_text()
    calls = agent.partition("\ndef innermost")[2].partition("\ntool = ")[0]
    imports = "import asyncio\nfrom mcp import Client, MCPError\ndef innermost"
    end = 'print(asyncio.run(call("search")))'
    (folder / "my_calls.py").write_text(f"{imports}{calls}\n{end}")


def _listens(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return True


def _script() -> str:
    titles = "your app", "your sidecar's file", "your sidecar", "your decisions"
    blocks = [commands(PAGE, title) for title in (*titles, "your second source")]
    stop = "set -m; trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"
    return "\n".join([stop, "python my_data.py", *blocks])


def _moved(text: str, ports: dict[str, int]) -> str:
    """The text with the ports of this test."""
    return re.sub(
        r"\b(8001|8700|8720|9000|18720|18721)\b", lambda found: str(ports[found[0]]), text
    )


def _folder(tmp_path: Path, stack: Stack, ports: dict[str, int]) -> Path:
    """The reader's folder, with what they save, and the control API's first keys."""
    folder = tmp_path / "app"
    (folder / ".sluice").mkdir(parents=True)
    first = {"admin_key": stack.admin_key}
    kept = folder / ".sluice" / "first-start.json"
    kept.touch(mode=0o600)
    kept.write_text(json.dumps(first))
    saved = [title.removeprefix("save as ") for title in BLOCKS if title.startswith("save as ")]
    assert len(saved) == 7
    for name in saved:
        (folder / name).write_text(_moved(BLOCKS[f"save as {name}"], ports))
    # As `sluice`, but for the ports in the example that it prints.
    moves = "; ".join(f"s/\\b{shown}\\b/{here}/g" for shown, here in ports.items())
    here = f'"{sys.executable}" -m deploy.command "$@"'
    example = f'case "$*" in *--example*) {here} | sed "{moves}"; exit;; esac'
    put(tmp_path / "bin", "sluice", f"#!/bin/bash\n{example}\nexec {here}\n")
    put(tmp_path / "bin", "python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    return folder


def _environ(tmp_path: Path) -> dict[str, str]:
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    return {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}


def _chroma(tmp_path: Path, port: int) -> Service:
    program = str(Path(sys.executable).with_name("chroma"))
    place = ["--path", str(tmp_path / "chroma"), "--host", "127.0.0.1", "--port", str(port)]
    server = Service("chroma", [program, "run", *place], {}, tmp_path / "chroma.log", port)
    server.start(ready=False)
    heartbeat = "/api/v2/heartbeat"
    until("chroma is up", lambda: call(port, "GET", heartbeat)[0] == 200, despite=AWAY)
    return server
