"""A sidecar in front of a PostgreSQL server, in a thread of its own, of which the test can change
the policies and read the records."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from policies.ground.addresses import ListenAddress
from policies.sets.policy_set import role_document, role_name
from sidecar.settings.model import Defaults
from sidecar.settings.model import Source as SourceSettings
from sidecar.settings.postgres import AllowedFunctions, Login, ResultLimits
from sidecar.settings.sections import SpoolSettings
from tests.support.postgres_source import LOGIN, Source
from tests.support.postgres_wire import Address
from tests.support.proxy import ROLE, Sidecar, policy, sidecar

DENIED = ("postgres://crm/crm/secret/*", "postgres://crm/crm/cast_aside/*")
Made = TypeVar("Made")


class Watched:
    """The sidecar `made`, which listens at `address`. `call` runs something in its thread."""

    def __init__(self, address: Address, made: Sidecar, loop: asyncio.AbstractEventLoop) -> None:
        self.address = address
        self.made = made
        self.loop = loop

    def call(self, work: Coroutine[Any, Any, Made]) -> Made:
        """Return what a coroutine returns, which runs in the sidecar's thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def publish(self, name: str, document: bytes | None) -> None:
        """Put a document of the policy set in force, None to remove it."""

        async def publish() -> None:
            self.made.publish_document(name, document)

        self.call(publish())

    def allow(self, *denied: str) -> None:
        """Put a policy in force that allows everything but `denied` and the payroll."""
        document = role_document((policy(denied_sources=(*DENIED, *denied)),))
        self.publish(role_name(ROLE), document)

    def decisions(self) -> list[tuple[str, str, str]]:
        """Return decision, policy name and source of each record."""
        return self.call(self.made.decisions())


@contextlib.contextmanager
def watched(
    source: Source,
    *,
    port: int | None = None,
    spool: dict[str, Any] | None = None,
    result: ResultLimits | None = None,
    **changes: Any,
) -> Iterator[Watched]:
    """Yield a sidecar that denies the payroll. `port` is that of what stands between it and the
    server; `spool` changes the settings of its spool."""
    made: queue.Queue[Watched | BaseException] = queue.Queue()
    ended: list[asyncio.Event] = []
    settings: dict[str, Any] = {
        "alias": "crm",
        "kind": "postgres",
        "upstream": f"postgres://127.0.0.1:{port or source.login.port}/{source.login.database}",
        "listen": ListenAddress("127.0.0.1", 0),
        "sensitivity": "medium",
        "login": Login(LOGIN, source.password_file),
        "functions": AllowedFunctions(("public.*", "api.*")),
        "defaults": Defaults(user="ada"),
        "result": result or ResultLimits(),
    }

    async def serve() -> None:
        ended.append(asyncio.Event())
        with tempfile.TemporaryDirectory(prefix="sluice-sidecar-") as folder:
            own = None if spool is None else SpoolSettings(Path(folder, "spool"), **spool)
            async with sidecar(Path(folder), policy(denied_sources=DENIED), spool=own) as running:
                proxy = running.proxy([SourceSettings(**(settings | changes))])
                await proxy.start()
                address = source.login._replace(port=proxy.port("crm"))
                made.put(Watched(address, running, asyncio.get_running_loop()))
                await ended[0].wait()
                await proxy.close(1)

    def run() -> None:
        try:
            uvloop.run(serve())
        except BaseException as error:
            made.put(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    running = made.get()
    if isinstance(running, BaseException):
        raise running
    try:
        yield running
    finally:
        running.loop.call_soon_threadsafe(ended[0].set)
        thread.join()
