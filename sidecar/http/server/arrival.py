"""Chooses the protocol of a connection when it is made, and not when it is accepted: the event loop
accepts many at once, and each choice depends on the places that the others have taken."""

import asyncio
from collections.abc import Callable
from typing import cast


class Arrival(asyncio.Protocol):
    """Gives a new connection to the protocol that `choose` returns."""

    __slots__ = ("_choose",)

    def __init__(self, choose: Callable[[], asyncio.Protocol]) -> None:
        self._choose = choose

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        chosen = self._choose()
        # uvloop's transports don't inherit from asyncio's.
        cast(asyncio.Transport, transport).set_protocol(chosen)
        chosen.connection_made(transport)
