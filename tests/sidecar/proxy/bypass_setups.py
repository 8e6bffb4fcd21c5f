"""Every way into the proxy as a setup with one source `kb`, so that one corpus goes through all of
them. A new way is one more line in `WAYS`."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from policies.definitions.model import Policy
from policies.ground.addresses import ListenAddress
from tests.sidecar.proxy.other_ways_in import Detour, Plain, detour
from tests.support.ports import free_port
from tests.support.proxy import ProxySetup, listening, sidecar, source, warm
from tests.support.scripted_source import data_source

Way = Callable[..., AbstractAsyncContextManager[ProxySetup]]

_TARGET = re.compile(rb"^([A-Za-z]+[ \t])(/[^\r\n ]*)(?= HTTP/)", re.MULTILINE)


class Below(Detour):
    """Writes what leads to the source in front of every target."""

    async def _begun(self, *_: object) -> Plain:
        return Plain(partial(_TARGET.sub, rb"\1/kb\2"))


@asynccontextmanager
async def alone(tmp_path: Path, given: Policy, **changes: Any) -> AsyncIterator[ProxySetup]:
    """A port of its own."""
    async with (
        data_source() as upstream,
        sidecar(tmp_path, given) as made,
        listening(made, source(upstream.port, writes="allow", **changes)) as port,
    ):
        yield ProxySetup(port, upstream, made)


@asynccontextmanager
async def shared(
    tmp_path: Path, given: Policy, *, by: str, **changes: Any
) -> AsyncIterator[ProxySetup]:
    """Another source listens at the same address."""
    port = free_port()
    listen = ListenAddress("127.0.0.1", port)
    kb = {"hosts": ("kb.test", "kb")} if by == "host" else {"path": "/kb"}
    crm = {"hosts": ("crm.test",)} if by == "host" else {"path": "/crm"}
    async with data_source() as upstream, data_source() as other, sidecar(tmp_path, given) as made:
        sources = (
            source(upstream.port, listen=listen, writes="allow", **kb, **changes),
            source(other.port, alias="crm", listen=listen, writes="allow", **crm),
        )
        proxy = made.proxy(sources)
        await proxy.start()
        await warm(proxy)
        try:
            async with Below("path", port).listening() as below:
                told = below if by == "path" else port
                yield ProxySetup(told, upstream, made, ("rest://kb", f"web://127.0.0.1:{port}"))
            assert other.begun == []
        finally:
            await proxy.close(1)


@asynccontextmanager
async def named(tmp_path: Path, given: Policy, *, way: str) -> AsyncIterator[ProxySetup]:
    """By the forward proxy, or on a redirected connection."""
    async with detour(tmp_path, way, given) as made:
        yield made


WAYS: dict[str, Way] = {
    "alone": alone,
    "by host": partial(shared, by="host"),
    "by path": partial(shared, by="path"),
    "absolute": partial(named, way="absolute"),
    "tunnel": partial(named, way="tunnel"),
    "opened tunnel": partial(named, way="opened"),
    "redirected": partial(named, way="redirected"),
    "unwrapped": partial(named, way="unwrapped"),
}
