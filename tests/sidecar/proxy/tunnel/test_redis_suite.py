"""redis-py's own tests, which its source brings, run against a Redis straight and through a source
of the kind `tcp`: what passes straight passes through.

Skipped if redis-py's source or a Redis is missing (`tests/servers.py`).
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests import servers
from tests.support import redis
from tests.support.proxy import listening, sidecar, source
from tests.support.redis import running_redis

# Of the files that speak to one server, those whose commands and ways of waiting differ.
PARTS = (
    "test_commands.py",
    "test_connection.py",
    "test_connection_pool.py",
    "test_encoding.py",
    "test_lock.py",
    "test_monitor.py",
    "test_pipeline.py",
    "test_pubsub.py",
    "test_scripting.py",
    "test_asyncio/test_commands.py",
    "test_asyncio/test_encoding.py",
    "test_asyncio/test_lock.py",
    "test_asyncio/test_monitor.py",
    "test_asyncio/test_pipeline.py",
    "test_asyncio/test_pubsub.py",
    "test_asyncio/test_scripting.py",
)
# They need a cluster, modules, TLS or an identity provider.
ELSEWHERE = "not onlycluster and not redismod and not ssl and not cp_integration"
LONGEST = 1200
"""Seconds after which the suite is given up."""


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/tunnel/test_connect_tcp.py::test_a_data_source_that_speaks_first_is_heard_at_once"
)
@pytest.mark.asyncio(loop_factories=["uvloop"])
@redis.needs_redis
async def test_redis_pys_own_tests_pass_through_the_sidecar(tmp_path: Path) -> None:
    suite = servers.need("redis-py")
    with running_redis(tmp_path / "one") as one, running_redis(tmp_path / "two") as two:
        cache = source(0, "tcp", alias="cache", sensitivity="low")
        async with (
            sidecar(tmp_path) as made,
            listening(made, replace(cache, upstream=f"tcp://127.0.0.1:{two.port}")) as port,
        ):
            straight, through = await asyncio.gather(
                passed(suite, one.port, tmp_path / "straight.xml"),
                passed(suite, port, tmp_path / "through.xml"),
            )
            decided = await made.decisions()
    assert len(straight) >= 1500
    assert straight - through == set()
    assert set(decided) == {("ALLOW", "analysts-read", "tcp://cache")}


async def passed(suite: Path, port: int, report: Path) -> set[str]:
    """The tests that pass against the Redis at `port`."""
    command = [
        *(sys.executable, "-W", "ignore", "-m", "pytest", "-p", "no:cacheprovider", "--quiet"),
        *("-o", "addopts=", "-m", ELSEWHERE, f"--junit-xml={report}"),
        *(f"--redis-url=redis://127.0.0.1:{port}/0", *(str(suite / each) for each in PARTS)),
    ]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=suite.parent,
        env=_alone(os.environ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), LONGEST)
    # 0: all passed, 1: some failed. All else is a suite that didn't run.
    assert process.returncode in (0, 1), output.decode()[-20_000:]
    cases = ET.parse(report).iter("testcase")
    return {f"{each.get('classname')}.{each.get('name')}" for each in cases if not list(each)}


def _alone(environ: Mapping[str, str]) -> dict[str, str]:
    """Without the plugins of this project's environment: the suite takes its own, by name."""
    kept = {name: value for name, value in environ.items() if not name.startswith("PYTEST_")}
    return kept | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_asyncio.plugin"}
