"""`http-cache-tests`: 350 tests of intermediaries, with the sidecar and without one. The sidecar is
no cache, so the results are the same, or the difference is listed.

Skipped if npm's package or Node is missing (`tests/servers.py`). Takes twenty seconds, mostly
asleep.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import uvloop

from tests import servers
from tests.support import origins
from tests.support.ports import free_port
from tests.support.proxy import listening, sidecar, source
from tests.support.stack import Service, listens
from tests.support.waiting import until

_MISFRAMED = "the server's answer can be read in two ways: a 502"
_SILENT = "the server breaks off without an answer: a client of its own sees that, others a 502"
DIFFERENCES = {
    "304-etag-update-response-Content-Length": _MISFRAMED,
    "headers-store-Content-Length": _MISFRAMED,
    "headers-store-Transfer-Encoding": _MISFRAMED,
    "stale-close": _SILENT,
    "stale-close-must-revalidate": _SILENT,
    "stale-close-no-cache": _SILENT,
    "stale-close-proxy-revalidate": _SILENT,
    "stale-close-s-maxage=2": _SILENT,
    "stale-sie-503": _SILENT,
    "stale-sie-close": _SILENT,
    "stale-warning-become": _SILENT,
    "stale-warning-stored": _SILENT,
}


def test_the_tests_for_caches_find_only_the_listed_differences(tmp_path: Path) -> None:
    folder, node = servers.need("http-cache-tests"), str(servers.need("node"))
    port = free_port()
    told = {
        "npm_config_protocol": "http",
        "npm_config_port": str(port),
        "npm_config_pidfile": str(tmp_path / "pid"),
        "npm_package_config_id": "",
    }
    script = [str(folder / "server" / "server.mjs")]
    command = [node, "-r", str(origins.APPS / "loopback.cjs"), "--no-warnings", *script]
    server = Service("http-cache-tests", command, told, tmp_path / "log", port)
    server.start(ready=False)
    try:
        until("the tests' server listens", lambda: listens(port))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            client = [node, "--no-warnings", str(folder / "cli.mjs")]

            def different(folder: str) -> dict[str, tuple[Any, Any]]:
                environ = {**os.environ, **told}
                (tmp_path / folder).mkdir()
                straight, through = runner.run(both(tmp_path / folder, client, environ, port))
                assert len(straight) == len(through) > 300
                return {
                    name: (straight[name], through[name])
                    for name in straight
                    if straight[name] != through[name]
                }

            found = different("1")
            if found.keys() != DIFFERENCES.keys():
                # The server of the tests closes what was idle for five seconds, also as a request
                # comes in on it; what the sidecar changes, it changes again.
                again = different("2")
                found = {name: found[name] for name in found.keys() & again.keys()}
    finally:
        server.stop()
    assert not {name: shown for name, shown in found.items() if name not in DIFFERENCES}
    # What fails in words of the client's own holds an address, so it never compares as equal.
    assert found.keys() == DIFFERENCES.keys()


async def both(
    tmp_path: Path, client: list[str], environ: dict[str, str], port: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the tests say of the server itself, and of the sidecar in front of it."""

    async def results(at: int) -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            *client,
            env={**environ, "npm_config_base": f"http://127.0.0.1:{at}"},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await asyncio.wait_for(process.communicate(), 120)
        found: dict[str, Any] = json.loads(output)
        return found

    async with (
        sidecar(tmp_path) as made,
        listening(made, source(port, writes="allow")) as through,
    ):
        return await asyncio.gather(results(port), results(through))
