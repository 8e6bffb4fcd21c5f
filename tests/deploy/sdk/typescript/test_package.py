"""The package as its users get it: packed, installed, and tried as its README says."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.sdk.python.scripted_server import ALLOW, DENY, response, says, serving
from tests.deploy.sdk.typescript.node import PACKAGE, npm, run_in
from tests.servers import need
from tests.support.stack import running_stack

README = (PACKAGE / "README.md").read_text()
EXAMPLE = re.findall(r"```js\n(.*?)```", README, re.S)[0]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("node")
    folder = tmp_path_factory.mktemp("packed")
    told = npm("pack", str(PACKAGE), "--json", cwd=folder, cache=folder / "cache")
    [made] = json.loads(told)
    return folder / str(made["filename"])


def test_the_package_has_its_sources_and_nothing_else(packed: Path) -> None:
    with tarfile.open(packed) as archive:
        names = {name.removeprefix("package/") for name in archive.getnames()}
    sources = {f"src/{path.name}" for path in (PACKAGE / "src").iterdir()}
    assert names == sources | {"package.json", "README.md", "CHANGELOG.md"}
    about = json.loads((PACKAGE / "package.json").read_text())
    assert not {"dependencies", "peerDependencies", "scripts"} & about.keys()


def guarded(folder: Path, address: str, agent_id: str, key: str) -> Any:
    """What the README's example answers in `folder`, where the package is installed, and the name
    of the error by which a function of a denied source rejects."""
    first, *rest = EXAMPLE.splitlines(keepends=True)
    made = "".join(rest).replace("http://127.0.0.1:8710", address)
    made = made.replace('"agt_support"', f'"{agent_id}"')
    assert address in made
    script = f"""
    const {{ key }} = JSON.parse(process.env.GIVEN);
    const contracts = {{ search: (words) => `found ${{words}}` }};
    {made}
    const payroll = guard.source("payroll")(async () => "ran");
    const allowed = await searchContracts("terms");
    const {{ name }} = await payroll().catch((error) => error);
    guard.close();
    return [allowed, name];
    """
    return run_in(folder, first, script, {"key": key})


def test_the_three_lines_of_the_readme_guard_a_function_by_the_packed_sources(
    packed: Path, tmp_path: Path
) -> None:
    assert len(EXAMPLE.strip().splitlines()) == 3
    with tarfile.open(packed) as archive:
        # Python before 3.11.4 has no such filter.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "package").rename(tmp_path / "node_modules" / "sluice-guard")
    with serving(says(response(ALLOW)), says(response(DENY))) as server:
        assert guarded(tmp_path, server.url, "agt", "k") == ["found terms", "Denied"]
    asked = [json.loads(each.partition(b"\r\n\r\n")[2]) for each in server.requests]
    assert [each["source_id"] for each in asked] == ["contracts", "payroll"]
    assert {each["agent_id"] for each in asked} == {"agt"}


@pytest.mark.deep(
    stands_in="test_the_three_lines_of_the_readme_guard_a_function_by_the_packed_sources"
)
def test_three_lines_guard_a_function(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"type": "module"}')
    npm("install", str(packed), cwd=tmp_path, cache=tmp_path / "cache")
    with running_stack(tmp_path / "stack") as stack:
        assert f'"{stack.role}"' in EXAMPLE
        address = f"http://127.0.0.1:{stack.sidecar.port}"
        told = guarded(tmp_path, address, stack.agent_id, stack.agent_key)
        assert told == ["found terms", "Denied"]
