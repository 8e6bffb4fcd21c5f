"""The distribution: what it contains, needs and imports, on the oldest Python that it supports."""

from __future__ import annotations

import ast
import builtins
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from policies.definitions.model import Policy
from policies.sets.role import compile_role
from sluice_guard import Guard, Unavailable
from tests.deploy.package.distribution import (
    ROOT,
    SITE_PACKAGES,
    build,
    empty_venv,
    install,
    lend_libraries,
)
from tests.deploy.sdk.python.framework_environment import SDK
from tests.deploy.sdk.python.scripted_server import ALLOW, response, says, serving
from tests.support.documents import blocks, commands, paste
from tests.support.stack import Stack

PAGE = "deploy/sdk/python/README.md"
PACKAGE = SDK / "sluice_guard"
# Beside the standard library: httpx, and its parser. The frameworks' own modules import them.
NEEDED = {"h11", "httpx", "sluice_guard"}
OF_FRAMEWORKS = {"langchain.py": "langchain_core", "llama_index.py": "llama_index"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"), SDK)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel; httpx is the tests' own."""
    python = empty_venv(tmp_path_factory.mktemp("installed") / "venv")
    install(wheel, python)
    lend_libraries(python)
    return python


def run(python: Path, script: str, folder: Path, **environ: str) -> str:
    return subprocess.run(
        [str(python), "-c", script],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_wheel_and_sdist_contain_only_the_package(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {f"sluice_guard/{path.name}" for path in PACKAGE.glob("*.py")}
    assert names == expected | {"sluice_guard/py.typed"}
    with tarfile.open(build("sdist", tmp_path, SDK)) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert held >= names | {"README.md", "pyproject.toml", "recipes/mcp_server.py"}
    assert not [name for name in held if name.endswith((".lock", ".txt"))]


def test_httpx_is_the_one_dependency() -> None:
    project = tomllib.loads((SDK / "pyproject.toml").read_text())["project"]
    assert [re.match(r"[\w-]+", each)[0] for each in project["dependencies"]] == ["httpx"]  # type: ignore[index]
    assert "optional-dependencies" not in project


def test_only_the_frameworks_own_modules_import_a_framework() -> None:
    for path in PACKAGE.glob("*.py"):
        tops = {
            name.partition(".")[0]
            for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 10)))
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        allowed = NEEDED | {OF_FRAMEWORKS.get(path.name, "")}
        if path.name == "guard.py":
            allowed |= {"langchain_core"}  # for types only, as the next lines show
        assert tops - sys.stdlib_module_names <= allowed, path.name
        # Such a module is imported where it is used, if at all.
        at_once = [
            name
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
            )
        ]
        own = {f"sluice_guard.{name.removesuffix('.py')}" for name in OF_FRAMEWORKS}
        assert not own & {*at_once}, path.name
        if path.name not in OF_FRAMEWORKS:
            frameworks = {each.partition(".")[0] for each in at_once}
            assert frameworks <= NEEDED | sys.stdlib_module_names, path.name


@pytest.mark.deep(stands_in="test_only_the_frameworks_own_modules_import_a_framework")
def test_no_framework_is_imported_unless_it_is_used(installed: Path, tmp_path: Path) -> None:
    script = "import sys, sluice_guard; print(sluice_guard.__file__, *sys.modules)"
    place, *loaded = run(installed, script, tmp_path).split()
    assert place.startswith(str(installed.parents[1]))
    assert not {"langchain_core", "llama_index", "crewai", "agents", "mcp"} & set(loaded)


def test_the_readme_s_example_runs_as_installed(
    installed: Path, stack: Stack, tmp_path: Path
) -> None:
    (example,) = [each.text for each in blocks(PAGE) if each.title == "example"]
    environ = {
        "SLUICE_GUARD_URL": f"http://127.0.0.1:{stack.sidecar.port}",
        "SLUICE_GUARD_KEY": stack.agent_key,
        "SLUICE_GUARD_AGENT_ID": stack.agent_id,
        "SLUICE_GUARD_ROLE": stack.role,
        "SLUICE_GUARD_TIMEOUT": "30",
    }
    said = run(installed, example, tmp_path, **environ)
    assert said.startswith("2 pages on leave\n")
    assert "Access to `payroll` was denied" in said


def test_the_readme_s_commands_name_existing_files() -> None:
    installing, running = (commands(PAGE, each) for each in ("install the guard", "run a recipe"))
    [package] = re.findall(r"pip install \./(\S+)", installing)
    assert (ROOT / package / "pyproject.toml").is_file()
    [recipe] = re.findall(r"^python (\S+)$", running, re.MULTILINE)
    assert (ROOT / recipe).is_file()
    told = re.findall(r"\b(SLUICE_GUARD_\w+)=", running)
    read = re.findall(r"\bSLUICE_GUARD_\w+", (PACKAGE / "guard.py").read_text())
    assert {*told} <= {*read}
    needed = {f"SLUICE_GUARD_{each}" for each in ("URL", "KEY_FILE", "AGENT_ID", "ROLE")}
    assert {*told} == needed


def test_the_readme_s_policy_allows_what_its_guards_ask_for() -> None:
    page = {each.title: each.text for each in blocks(PAGE)}
    policy = yaml.safe_load(page["save as my-app-functions.yaml"])
    role = compile_role("my_app", [Policy.from_wire({**policy, "policy_id": "", "version": 0})])
    (clause,) = role.clauses
    (source, level), *_ = re.findall(
        r'@guard\.source\("(\w+)", sensitivity="(\w+)"\)', page["example"]
    )
    assert clause.allows(source)
    assert level == policy["max_sensitivity"]
    guard = Guard("http://127.0.0.1:1", "slc_none", "agt_my_app", "my_app")

    @guard.tool(sensitivity="low")
    def search() -> None: ...

    with pytest.raises(Unavailable) as raised:
        search()
    assert clause.allows(raised.value.source_id)
    agent = yaml.safe_load(page["sidecar.yaml"])["agent"]
    assert (agent["id"], agent["role"]) == ("agt_my_app", policy["agent_role"])


@pytest.mark.deep(stands_in="test_the_readme_s_commands_name_existing_files")
def test_the_readme_s_commands_install_the_guard_and_run_a_recipe(
    stack: Stack, tmp_path: Path
) -> None:
    """As a reader would, but for what comes from an index: that is lent, once pip has a place."""
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / ".sluice").symlink_to(stack.directory)
    lent = f'echo "{SITE_PACKAGES}" > "$(echo agent/lib/python3*/site-packages)/lent.pth"'
    install_it, run_it = (commands(PAGE, title) for title in ("install the guard", "run a recipe"))
    script = install_it.replace("pip install", f"{lent}\npip install") + run_it
    for shown, here in (
        ("127.0.0.1:8710", f"127.0.0.1:{stack.sidecar.port}"),
        ("agt_support", stack.agent_id),
        ("support_assistant", stack.role),
    ):
        assert shown in script
        script = script.replace(shown, here)
    environ = {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SLUICE_GUARD_TIMEOUT": "30",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip's spelling of: do not isolate
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    done = paste(script, tmp_path, environ)
    assert done.returncode == 0, done.stderr
    assert "ALLOW: I read this" in done.stdout
    assert "Access to `payroll` was denied" in done.stdout


def test_the_oldest_python_has_every_used_part_of_the_standard_library() -> None:
    used = {name for path in PACKAGE.glob("*.py") for name in _standard_names(path)}
    assert {("asyncio", "Protocol"), ("typing", "NamedTuple"), ("builtins", "TimeoutError")} <= used
    script = (
        "import importlib, sys\n"
        "for each in sys.argv[1:]:\n"
        "    module, name = each.split(':')\n"
        "    if not hasattr(importlib.import_module(module), name): print(each)\n"
    )
    names = sorted(map(":".join, used))
    answer = subprocess.run(
        [_python_3_10(), "-I", "-S", "-c", script, *names],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not answer.stdout


def _standard_names(path: Path) -> Iterator[tuple[str, str]]:
    """The names of the standard library that a file uses, each with its module."""
    nodes = [*ast.walk(ast.parse(path.read_text(), feature_version=(3, 10)))]
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module.partition(".")[0] in sys.stdlib_module_names:
                yield from ((module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in sys.stdlib_module_names:
                yield node.value.id, node.attr
        elif isinstance(node, ast.Name) and hasattr(builtins, node.id):
            yield "builtins", node.id


@pytest.mark.deep(stands_in="test_the_oldest_python_has_every_used_part_of_the_standard_library")
def test_the_guard_runs_on_the_oldest_python(tmp_path: Path) -> None:
    python = _python_3_10()
    venv = empty_venv(tmp_path / "venv", python)
    lend_libraries(venv)
    script = (
        "import asyncio, sys, sluice_guard as s; assert sys.version_info[:2] == (3, 10)\n"
        "g = s.Guard(sys.argv[1], 'k', 'a', 'r', timeout=30)\n"
        "f = g.source('x')(lambda: 'ran')\n"
        "async def main(): return bool(await g.acheck('x'))\n"
        "print(bool(g.check('x')), f(), asyncio.run(main()))\n"
        "d = s.Guard('http://127.0.0.1:1', 'k', 'a', 'r', timeout=1)\n"
        "try: asyncio.run(d.acheck('x'))\n"
        "except s.Unavailable: print('unavailable')\n"
    )
    with serving(says(response(ALLOW))) as server:
        answer = subprocess.run(
            [str(venv), "-c", script, server.url],
            env={"PYTHONPATH": str(SDK)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert answer.stdout.split() == ["True", "ran", "True", "unavailable"], answer.stderr


def _python_3_10() -> str:
    places = [*Path.home().glob(".pyenv/versions/3.10*/bin"), *map(Path, os.get_exec_path())]
    for place in places:
        found = shutil.which("python3.10", path=str(place))
        if found is not None:
            answer = subprocess.run([found, "-V"], capture_output=True, text=True, check=False)
            if answer.stdout.startswith("Python 3.10."):
                return found
    pytest.skip("no Python 3.10 here")
