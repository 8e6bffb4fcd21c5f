"""A shipper between a spool and a fake of the control API's log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sidecar.control.client import ControlClient
from sidecar.control.log_client import LogClient
from sidecar.control.shipper import Shipper
from sidecar.spool import Spool
from tests.sidecar.spool.fake_log import TENANT, FakeLog
from tests.sidecar.spool.running_spool import CLOCK, check_chain

KEY = "slc_key-of-the-sidecar"


def make_shipper(
    spool: Spool,
    control: ControlClient,
    log: FakeLog,
    log_keys: Callable[[], tuple[bytes, ...]] | None = None,
    learn_key: Callable[[], Awaitable[str | None]] | None = None,
    *,
    compress: bool = False,
) -> Shipper:
    async def know_all() -> str | None:
        return None

    keys = log_keys or (lambda: (log.signer.public,))
    client = LogClient(control, lambda: TENANT, keys, learn_key or know_all, compress=compress)
    return Shipper(spool, client, CLOCK)


@asynccontextmanager
async def shipping(
    spool: Spool,
    log: FakeLog,
    *,
    address: str | None = None,
    log_keys: Callable[[], tuple[bytes, ...]] | None = None,
    learn_key: Callable[[], Awaitable[str | None]] | None = None,
    compress: bool = False,
) -> AsyncIterator[Shipper]:
    async with ControlClient(address or log.address, KEY) as control:
        shipper = make_shipper(spool, control, log, log_keys, learn_key, compress=compress)
        loop = asyncio.create_task(shipper.run())
        try:
            yield shipper
            assert not loop.done(), loop.exception()
        finally:
            loop.cancel()


def check_log(log: FakeLog, *eids: object) -> None:
    """These events, each once, in this order, in chains that hold."""
    assert log.events() == [str(eid) for eid in eids]
    check_chain(log.entries)
