"""The witness's lifetime: lock > key > memory > port; then drain.

Knows neither the command line nor the environment.
"""

import asyncio
import gc
import logging
import signal
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from control_api.security.tls_files import RenewingContext
from control_api.small_server.listener import Listener
from control_api.witness.configuration import WitnessConfiguration
from control_api.witness.files import load_signer, locked, locked_state
from control_api.witness.memory import Memory
from control_api.witness.metrics import WitnessMetrics
from control_api.witness.submissions import Submissions
from control_api.witness.witness import Witness
from policies.ground.clock import Clock
from policies.ground.listen_address import ListenAddress

FINISH_SECONDS = 6.0
"""How long requests under way may take at the end."""
_log = logging.getLogger("sluice.witness")


class Prepared(NamedTuple):
    """A witness that has its locks, its key and its memory, before a port is opened."""

    configuration: WitnessConfiguration
    witness: Witness
    tls: ssl.SSLContext | None


@contextmanager
def prepared(configuration: WitnessConfiguration, clock: Clock) -> Iterator[Prepared]:
    """Holds the locks. Raises `UnusableFile` or `UnusableTls` before anything is served."""
    tls = None if configuration.tls is None else RenewingContext.of(configuration.tls)
    with locked_state(configuration.state):
        memory = Memory(configuration.state)
        signer = load_signer(configuration.key_file, make=not len(memory))
        # A second configuration could name the same key with another state.
        with locked(configuration.key_file):
            witness = Witness(configuration.name, signer, configuration.logs, memory, clock.now)
            for origin in configuration.logs:
                if memory.get(origin) is None:
                    _log.warning("no checkpoint of log `%s` is known: its next begins it", origin)
            yield Prepared(configuration, witness, tls)


async def serve(prepared: Prepared, announce: Callable[[ListenAddress], None]) -> None:
    """Serve until SIGTERM or SIGINT. Raises `CannotListen`."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    registry = CollectorRegistry()
    metrics = WitnessMetrics(registry)
    handler = Submissions(prepared.witness, metrics, registry)
    listener = await Listener.open(
        prepared.configuration.listen, "listen", handler, metrics.connections, prepared.tls
    )
    gc.collect()
    gc.freeze()
    announce(listener.address)
    await stop.wait()
    handler.stopping = True
    await listener.drain(FINISH_SECONDS)
