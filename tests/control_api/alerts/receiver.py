"""Real receivers of alerts: an HTTP server and a mail server, on free ports of loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from email.parser import BytesParser
from email.policy import default
from typing import Any

from aiohttp import web
from aiosmtpd.controller import Controller

from tests.support.ports import free_port


@dataclass
class Hook:
    """What came in, and what is answered to it."""

    port: int = 0
    status: int = 200
    hang: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    seen: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/in/secret-token?k=v"

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append((dict(request.headers), await request.read()))
        if self.hang:
            await self.released.wait()
        return web.Response(status=self.status, headers=self.headers)


@contextmanager
def hook() -> Iterator[Hook]:
    """A receiver in a thread of its own."""
    receiver, ready = Hook(), threading.Event()
    loop = asyncio.new_event_loop()
    stop: list[asyncio.Event] = []

    async def live() -> None:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", receiver.answer)
        runner = web.AppRunner(application, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert runner.addresses
        receiver.port = runner.addresses[0][1]
        over = asyncio.Event()
        stop.append(over)
        ready.set()
        await over.wait()
        receiver.released.set()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(live(),), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield receiver
    finally:
        loop.call_soon_threadsafe(stop[0].set)
        thread.join(10)
        loop.close()


@dataclass
class Mailbox:
    """What the mail server took, and what it answers to a message."""

    port: int = 0
    reply: str = "250 taken"
    seen: list[Message] = field(default_factory=list)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        if self.reply.startswith("250"):
            self.seen.append(BytesParser(policy=default).parsebytes(envelope.content))
        return self.reply


@contextmanager
def mailbox() -> Iterator[Mailbox]:
    box = Mailbox(free_port())
    controller = Controller(box, hostname="127.0.0.1", port=box.port)
    controller.start()
    try:
        yield box
    finally:
        controller.stop()
