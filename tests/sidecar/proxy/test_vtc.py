"""Scripts of `varnishtest`, Varnish's byte-exact client and server, with the sidecar between them
where they expect Varnish. No `varnishd` is involved.

Each script in `vtc/` says in its first line what holds, over every way in. `${proxy}` is where its
client connects to, `${source}` where its server listens. Skipped if the program is missing
(`tests/servers.py`).
"""

import asyncio
import os
import re
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import uvloop

from tests import servers
from tests.sidecar.proxy.other_ways_in import detoured
from tests.support.ports import free_port
from tests.support.proxy import listening, sidecar, source

_URL = re.compile(r'(txreq .*?-url "[^"]*")')
SCRIPTS = sorted(Path(__file__).with_name("vtc").glob("*.vtc"))


@pytest.mark.parametrize("way", ["own", "absolute", "tunnel", "redirected"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_of_varnishtest_passes_through_the_sidecar(
    tmp_path: Path, script: Path, way: str
) -> None:
    program = servers.need("varnishtest")
    # It looks for `varnishd`, though it doesn't start it.
    path = os.pathsep.join([str(program.parent), os.environ.get("PATH", "")])
    environ = os.environ | {"PATH": path, "TMPDIR": str(tmp_path)}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code, output = runner.run(run(tmp_path, [str(program)], script, environ, way))
    assert code == 0, output


async def run(
    tmp_path: Path, command: list[str], script: Path, environ: dict[str, str], way: str
) -> tuple[int, str]:
    """The exit code of a script, and what it says."""
    port = free_port()
    # Most ways in find the data source by the name that the client calls it.
    named = tmp_path / script.name
    text = script.read_text().replace("Host: x", "Host: kb.test")
    named.write_text(_URL.sub(r'\1 -nohost -hdr "Host: kb.test"', text))
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(sidecar(tmp_path))
        ways = listening(made, source(port, writes="allow")) if way == "own" else None
        proxy = await stack.enter_async_context(ways or detoured(made, port, way))
        told = ["-D", f"proxy=127.0.0.1:{proxy}", "-D", f"source=127.0.0.1:{port}"]
        process = await asyncio.create_subprocess_exec(
            *command,
            *told,
            *["-v", "-t", "20", str(named)],
            env=environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode(errors="replace")
