"""Scripts of `varnishtest`, Varnish's byte-exact client and server, with the sidecar between them
where they expect Varnish. No `varnishd` is involved.

Each script in `vtc/` says in its first line what holds. `${proxy}` is where its client connects to,
`${source}` where its server listens. Skipped if the program is missing (`tests/servers.py`).
"""

import asyncio
import os
from pathlib import Path

import pytest
import uvloop

from tests import servers
from tests.ports import free_port
from tests.sidecar.proxy.proxy_setup import listening, sidecar, source

SCRIPTS = sorted(Path(__file__).with_name("vtc").glob("*.vtc"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(tmp_path: Path, script: Path) -> None:
    program = servers.need("varnishtest")
    environ = {**os.environ, **servers.libraries("varnishtest"), "TMPDIR": str(tmp_path)}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code, output = runner.run(run(tmp_path, [str(program)], script, environ))
    assert code == 0, output


async def run(
    tmp_path: Path, command: list[str], script: Path, environ: dict[str, str]
) -> tuple[int, str]:
    """The exit code of a script, and what it says."""
    port = free_port()
    async with (
        sidecar(tmp_path) as made,
        listening(made, source(port, writes="allow")) as proxy,
    ):
        told = ["-D", f"proxy=127.0.0.1:{proxy}", "-D", f"source=127.0.0.1:{port}"]
        process = await asyncio.create_subprocess_exec(
            *command,
            *told,
            *["-v", "-t", "20", str(script)],
            env=environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode(errors="replace")
