"""Merges the metrics of all workers: the worker that is scraped asks the others, over unix sockets
that only this user can reach.

Knows the sockets' folder and the format of a response, but nothing about the single metrics.
"""

import asyncio
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric

DIRECTORY = "workers"
ANSWER_SECONDS = 0.5
MAX_ANSWER = 16 * 1024 * 1024
MAX_ADDRESS = 100  # bytes; the kernel limits a unix socket's address to 107


class PeerMetrics:
    """Serves the metrics of worker `index` of `count` to its peers, and collects theirs.
    `unanswered()` is called for each peer that does not answer in time."""

    def __init__(
        self,
        data_dir: Path,
        index: int,
        count: int,
        registry: CollectorRegistry,
        unanswered: Callable[[], None],
    ) -> None:
        self._directory = data_dir / DIRECTORY
        # Keeps the folder open for `_address`: a path may be too long for a socket's address.
        self._handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        self._index = index
        self._others = [other for other in range(count) if other != index]
        self._registry = registry
        self._unanswered = unanswered
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        # A worker that was killed leaves its socket behind, and binding would fail.
        (self._directory / self._name(self._index)).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(self._address(self._index))
        self._server = await asyncio.start_unix_server(self._answer, sock=listening)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        os.close(self._handle)

    async def exposition(self) -> bytes:
        """Return the metrics of all workers that answer, in Prometheus' text format. The label
        `worker` tells them apart."""
        answers = await asyncio.gather(*(self._ask(other) for other in self._others))
        # All are asked at once: a scrape takes as long as the slowest peer, not as the sum of all.
        # Our own metrics are read last, so that they count the peers that did not answer.
        by_worker = {self._index: _to_wire(self._registry)}
        by_worker |= {i: wire for i, wire in zip(self._others, answers, strict=True) if wire}
        return generate_latest(_MergedRegistry(by_worker))

    async def _ask(self, other: int) -> list[Any]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_unix_connection(self._address(other))
                try:
                    found = json.loads(await _read_all(reader))
                finally:
                    writer.close()
        except (OSError, TimeoutError, ValueError):
            # The peer is being restarted or hangs, or its answer is cut off or too long: the scrape
            # goes on without it.
            self._unanswered()
            return []
        return list(found)

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps(_to_wire(self._registry)).encode())
        writer.write_eof()
        try:
            await writer.drain()
        except ConnectionError:
            return  # the peer did not wait for the answer
        finally:
            writer.close()

    def _name(self, index: int) -> str:
        return f"{index}.sock"

    def _address(self, index: int) -> str:
        path = str(self._directory / self._name(index))
        if len(os.fsencode(path)) <= MAX_ADDRESS:
            return path
        return f"/proc/self/fd/{self._handle}/{self._name(index)}"


class _MergedRegistry:
    """A registry with the metrics of several workers, in which each metric family occurs once."""

    def __init__(self, by_worker: dict[int, list[Any]]) -> None:
        self._by_worker = by_worker

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for index, wire in sorted(self._by_worker.items()):
            for name, help_text, kind, samples in wire:
                family = families.setdefault(name, Metric(name, help_text, kind))
                for sample, labels, value in samples:
                    family.add_sample(sample, {**labels, "worker": str(index)}, value)
        return iter(families.values())


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    """Read the stream to its end. Raise `ValueError` if it has more than `MAX_ANSWER` bytes."""
    answer = bytearray()
    # One `read` returns what has arrived, not the whole answer.
    while piece := await reader.read(MAX_ANSWER):
        answer += piece
        if len(answer) > MAX_ANSWER:
            raise ValueError(f"the answer is longer than {MAX_ANSWER} bytes")
    return bytes(answer)


def _to_wire(registry: CollectorRegistry) -> list[Any]:
    return [
        (
            family.name,
            family.documentation,
            family.type,
            [(each.name, each.labels, each.value) for each in family.samples],
        )
        for family in registry.collect()
    ]
