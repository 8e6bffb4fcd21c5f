"""The package as its users get it: packed, installed, and tried as its README says."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import pytest

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


@pytest.mark.deep(stands_in="test_the_package_has_its_sources_and_nothing_else")
def test_three_lines_guard_a_function(packed: Path, tmp_path: Path) -> None:
    assert len(EXAMPLE.strip().splitlines()) == 3
    (tmp_path / "package.json").write_text('{"type": "module"}')
    npm("install", str(packed), cwd=tmp_path, cache=tmp_path / "cache")
    first, *rest = EXAMPLE.splitlines(keepends=True)
    with running_stack(tmp_path / "stack") as stack:
        address = f"http://127.0.0.1:{stack.sidecar.port}"
        made = "".join(rest).replace("http://127.0.0.1:8710", address)
        made = made.replace('"agt_support"', f'"{stack.agent_id}"')
        assert (address in made, f'"{stack.role}"' in made) == (True, True)
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
        told = run_in(tmp_path, first, script, {"key": stack.agent_key})
        assert told == ["found terms", "Denied"]
