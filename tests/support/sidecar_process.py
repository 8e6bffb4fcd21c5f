"""A sidecar as a process of its own, for tests of how it starts, runs and stops."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import yaml
from aiohttp import ClientConnectionError, ClientSession

from tests.support import waiting
from tests.support.fake_control_api import AGENT, EVALUATE_KEY, ROLE, SIDECAR_KEY, FakeControlApi
from tests.support.ports import free_port
from tests.support.sidecar import EVALUATE, ask
from tests.support.stack import ROOT
from tests.support.waiting import until_async

HEADERS = {"X-API-Key": EVALUATE_KEY, "Content-Type": "application/json"}


class SidecarProcess:
    """`python -m sidecar` with a file of settings."""

    def __init__(self, directory: Path, control: FakeControlApi, **settings: object) -> None:
        self.directory = directory
        self.port = free_port()
        for name, key in (("sidecar.key", SIDECAR_KEY), ("agent.key", EVALUATE_KEY)):
            (directory / name).write_text(key)
        self.config = {
            "id": "sidecar-1",
            "control": control.address,
            "key_file": "sidecar.key",
            "listen": f"127.0.0.1:{self.port}",
            "spool": {"dir": "spool"},
            "agent": {"id": AGENT, "role": ROLE, "key_file": "agent.key"},
            **settings,
        }
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, *, ready: bool = True) -> None:
        path = self.directory / "sidecar.yaml"
        path.write_text(yaml.safe_dump(self.config))
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "sidecar",
            "--config",
            str(path),
            cwd=ROOT,
            stderr=asyncio.subprocess.PIPE,
        )
        if ready:
            await until_async("the sidecar is ready", self._ready)

    async def status(self, path: str) -> int:
        """Return the status of an answer; 0 if no process listens."""
        try:
            async with (
                ClientSession() as session,
                session.get(f"http://127.0.0.1:{self.port}{path}") as answer,
            ):
                return answer.status
        except (ClientConnectionError, OSError):
            return 0

    async def stopping(self) -> bool:
        """Return whether the process says that it stops, or has stopped."""
        return await self.status("/health") != 200

    async def _ready(self) -> bool:
        assert self.process is not None
        if self.process.returncode is not None:
            raise AssertionError(await self.log())
        return await self.status("/health/ready") == 200

    async def evaluate(self, session: ClientSession, **changed: str) -> dict[str, str]:
        async with session.post(
            f"http://127.0.0.1:{self.port}{EVALUATE}",
            data=orjson.dumps(ask(**changed)),
            headers=HEADERS,
        ) as answer:
            body = await answer.json()
            assert answer.status == 200, body
            return dict(body)

    def tell(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def ended(self, seconds: float = waiting.PATIENCE) -> int:
        """Return the exit code, once the process has ended."""
        assert self.process is not None
        async with asyncio.timeout(seconds):
            return await self.process.wait()

    async def log(self) -> str:
        assert self.process is not None
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()


@asynccontextmanager
async def sidecar_process(
    directory: Path, control: FakeControlApi, **settings: object
) -> AsyncIterator[SidecarProcess]:
    made = SidecarProcess(directory, control, **settings)
    try:
        yield made
    finally:
        if made.process is not None and made.process.returncode is None:
            made.process.kill()
            await made.process.wait()
