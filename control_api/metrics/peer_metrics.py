"""What all workers counted, whichever is asked: each listens on a socket of its own that only this
user can reach, and whoever is scraped asks the others.

Knows the socket's folder and the form of an answer. Knows nothing of what is counted.
"""

import asyncio
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric

DIRECTORY = "workers"
ANSWER_SECONDS = 0.5
LONGEST = 16 * 1024 * 1024
LONGEST_ADDRESS = 100
"""Bytes: of a unix socket's address the kernel takes 107."""


class PeerMetrics:
    """The worker `index` of `count`; `unanswered()` counts one that did not answer in time."""

    def __init__(
        self,
        data_dir: Path,
        index: int,
        count: int,
        registry: CollectorRegistry,
        unanswered: Callable[[], None],
    ) -> None:
        self._directory = data_dir / DIRECTORY
        # For addresses: a path may be longer than the kernel takes.
        self._handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        self._index = index
        self._others = [other for other in range(count) if other != index]
        self._registry = registry
        self._unanswered = unanswered
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Answer the others from here on."""
        (self._directory / self._name(self._index)).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(self._address(self._index))
        self._server = await asyncio.start_unix_server(self._answer, sock=listening)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        os.close(self._handle)

    async def exposition(self) -> bytes:
        """Prometheus text of all that answer, `worker` telling them apart."""
        asked = await asyncio.gather(*(self._ask(other) for other in self._others))
        # Last: who did not answer is counted in it.
        everyone = {self._index: _wire(self._registry)}
        everyone |= {i: wire for i, wire in zip(self._others, asked, strict=True) if wire}
        return generate_latest(_MergedRegistry(everyone))

    async def _ask(self, other: int) -> list[Any]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_unix_connection(self._address(other))
                try:
                    found = json.loads(await reader.read(LONGEST))
                finally:
                    writer.close()
        except (OSError, TimeoutError, ValueError):
            # It is being started again, or hangs: the scrape does not wait for it.
            self._unanswered()
            return []
        return list(found)

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps(_wire(self._registry)).encode())
        writer.write_eof()
        try:
            await writer.drain()
        except ConnectionError:
            return  # whoever asked did not wait
        finally:
            writer.close()

    def _name(self, index: int) -> str:
        return f"{index}.sock"

    def _address(self, index: int) -> str:
        path = str(self._directory / self._name(index))
        if len(os.fsencode(path)) <= LONGEST_ADDRESS:
            return path
        return f"/proc/self/fd/{self._handle}/{self._name(index)}"


class _MergedRegistry:
    """The families of several workers as one registry has them: each family once."""

    def __init__(self, everyone: dict[int, list[Any]]) -> None:
        self._everyone = everyone

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for index, wire in sorted(self._everyone.items()):
            for name, about, kind, samples in wire:
                family = families.setdefault(name, Metric(name, about, kind))
                for sample, labels, value in samples:
                    family.add_sample(sample, {**labels, "worker": str(index)}, value)
        return iter(families.values())


def _wire(registry: CollectorRegistry) -> list[Any]:
    return [
        (family.name, family.documentation, family.type, list(_samples(family.samples)))
        for family in registry.collect()
    ]


def _samples(samples: Iterable[Any]) -> Iterator[tuple[str, dict[str, str], float]]:
    for each in samples:
        yield each.name, each.labels, each.value
