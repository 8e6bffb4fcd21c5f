"""One worker answers a scrape for all of them, however much each has to say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from control_api.metrics import peer_metrics
from control_api.metrics.peer_metrics import DIRECTORY, PeerMetrics

SERIES = 2500  # some 300 KB: more than one read of a socket returns


class Workers:
    """Two workers, and how many peers did not answer the first."""

    def __init__(self, directory: Path) -> None:
        (directory / DIRECTORY).mkdir()
        self.unanswered = 0
        registries = CollectorRegistry(), CollectorRegistry()
        self.counter = Counter("requests", "Requests.", ("path",), registry=registries[1])
        self.workers = [
            PeerMetrics(directory, index, 2, registry, self._count)
            for index, registry in enumerate(registries)
        ]

    def _count(self) -> None:
        self.unanswered += 1


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[Workers]:
    workers = Workers(tmp_path)
    for worker in workers.workers:
        await worker.open()
    yield workers
    for worker in workers.workers:
        worker.close()


async def test_a_large_answer_is_read_whole(workers: Workers) -> None:
    for number in range(SERIES):
        workers.counter.labels(f"/path/{number}").inc()
    page = (await workers.workers[0].exposition()).decode()
    assert page.count('requests_total{path="/path/') == SERIES
    assert workers.unanswered == 0


async def test_an_answer_over_the_limit_counts_as_none(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_metrics, "MAX_ANSWER", 100)
    workers.counter.labels("/").inc()
    assert b"requests_total" not in await workers.workers[0].exposition()
    assert workers.unanswered == 1
