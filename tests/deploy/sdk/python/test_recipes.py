"""Each recipe runs on the real library and asks a real sidecar: one ALLOW, and a DENY that the
model reads."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.deploy.sdk.python.framework_environment import SDK, python_with
from tests.support.stack import Stack

RECIPES = {
    "langchain_retriever": ("langchain", "langchain-1"),
    "langgraph_tool": ("frameworks", "langgraph-1"),
    "llama_index_postprocessor": ("frameworks", "llama-1"),
    "mcp_server": ("frameworks", "mcp-1"),
    "openai_agents_tool": ("frameworks", "openai-1"),
    "crewai_tool": ("crewai", "crewai-1"),
}
"""Recipe: its requirements, and the session in which it asks."""
EVENT = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Neither a report to a vendor nor a download may leave this machine.
QUIET = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "LANGSMITH_TRACING": "false",
    "OTEL_SDK_DISABLED": "true",
}


def run(recipe: str, stack: Stack, python: Path, home: Path) -> str:
    environ = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(SDK),
        "CREWAI_STORAGE_DIR": str(home / "crewai"),
        "SLUICE_GUARD_URL": f"http://127.0.0.1:{stack.sidecar.port}",
        "SLUICE_GUARD_KEY": stack.agent_key,
        "SLUICE_GUARD_AGENT_ID": stack.agent_id,
        "SLUICE_GUARD_ROLE": stack.role,
        "SLUICE_GUARD_TIMEOUT": "30",
        **QUIET,
    }
    answer = subprocess.run(
        [str(python), str(SDK / "recipes" / f"{recipe}.py")],
        cwd=home,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert answer.returncode == 0, answer.stderr[-4000:]
    assert stack.agent_key not in answer.stdout + answer.stderr
    return answer.stdout


def test_each_recipe_has_a_test() -> None:
    assert {path.stem for path in (SDK / "recipes").glob("*.py")} == RECIPES.keys()


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_model_gets_the_allowed_text_and_the_reason_of_the_denial(
    recipe: str, stack: Stack, tmp_path: Path
) -> None:
    requirements, session = RECIPES[recipe]
    said = run(recipe, stack, python_with(requirements), tmp_path)
    assert re.search(r"(?i)leave is 30 days", said)
    assert "Access to `payroll` was denied: source `payroll` is in `denied_sources`" in said
    # What is behind the guard was never called, or went no further.
    assert "9000" not in said
    if "ran:" in said:
        assert "ran: ['handbook']" in said
    if "asked:" in said:
        assert "asked: 2 0" in said
    # Every event id that the model was told is in the audit trail, for this user and session.
    told = set(EVENT.findall(said))
    assert told
    stack.wait_shipped(max(told))
    events = [each for each in stack.events() if each["session_id"] == session]
    denied = {each["event_id"] for each in events if each["decision"] == "DENY"}
    assert told == denied
    assert {each["user_id"] for each in events} == {"ann"}
    door = "langchain" if recipe == "langchain_retriever" else "sdk"
    assert {each["source_type"] for each in events} == {door}
    assert {each["source_id"] for each in events} == {"handbook", "payroll"}
