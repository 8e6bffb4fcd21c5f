"""A sidecar in front of a PostgreSQL server, in a thread of its own: the drivers of the tests block
theirs."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop

from policies.ground.addresses import ListenAddress
from sidecar.settings.model import Defaults
from sidecar.settings.model import Source as SourceSettings
from sidecar.settings.postgres import AllowedFunctions, Login
from tests.support.postgres_source import LOGIN, Source
from tests.support.postgres_wire import Address
from tests.support.proxy import Sidecar, policy, sidecar


def source_settings(source: Source, **changes: Any) -> SourceSettings:
    """Return the settings of a source in front of a server, by which agents may do all that the
    login may, but for `changes`."""
    whole: dict[str, Any] = {
        "alias": "crm",
        "kind": "postgres",
        "upstream": f"postgres://{source.login.host}:{source.login.port}/{source.login.database}",
        "listen": ListenAddress("127.0.0.1", 0),
        "sensitivity": "medium",
        "writes": "allow",
        "login": Login(LOGIN, source.password_file),
        "functions": AllowedFunctions(("public.*", "api.*")),
        "defaults": Defaults(user="ada"),
    }
    return SourceSettings(**(whole | changes))


@contextlib.contextmanager
def sidecar_in_front(
    source: Source, denied: tuple[str, ...] = (), **changes: Any
) -> Iterator[Address]:
    """Yield where a sidecar listens that allows everything but the sources in `denied`; `changes`
    are those of the settings."""
    answers: queue.Queue[int | BaseException] = queue.Queue()
    loops: queue.Queue[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        ended = asyncio.Event()
        loops.put((asyncio.get_running_loop(), ended))
        with tempfile.TemporaryDirectory(prefix="sluice-sidecar-") as folder:
            async with sidecar(Path(folder), policy(denied_sources=denied)) as made:
                await _serve(made, ended)

    async def _serve(made: Sidecar, ended: asyncio.Event) -> None:
        proxy = made.proxy([source_settings(source, **changes)])
        await proxy.start()
        answers.put(proxy.port("crm"))
        await ended.wait()
        await proxy.close(1)

    def run() -> None:
        try:
            uvloop.run(serve())
        except BaseException as error:
            answers.put(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    loop, ended = loops.get()
    try:
        port = answers.get()
        if isinstance(port, BaseException):
            raise port
        yield source.login._replace(port=port)
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
