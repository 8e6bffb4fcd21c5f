"""What levels of sources as floors cost an evaluation: `python -m tests.benchmarks.source_levels
[REQUESTS]`.

Two sidecars in one process, of equal tenants, but that one states levels: as many patterns as it
may, one of which matches every source at the lowest level, so that no answer changes and every
record has it. Its sidecar has settings for a source with a hundred names. Requests, rounds and
ratio are those of `candidates`.
"""

import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from policies.definitions.model import Sensitivity
from policies.sets.source_levels import SOURCES, sources_document
from sidecar.settings.model import NamedSource, Source
from tests.benchmarks import mixed
from tests.benchmarks.candidates import CONNECTIONS, ROUNDS, Connection, Turn, drained, publish
from tests.benchmarks.measure import CORES, Figure, directory
from tests.support.fake_control_api import EVALUATE_KEY, fake_control_api
from tests.support.sidecar import running_sidecar

PATTERNS = 1000
"""The most that a tenant may state."""
NAMES = {f"chroma://kb/{number}": NamedSource(f"kb-{number}", "low") for number in range(100)}
CONFIGURED = Source("kb", "chroma", "http://127.0.0.1:9", None, "low", names=NAMES)


@asynccontextmanager
async def ready(folder: Path, turn: Turn, *, stated: bool) -> AsyncIterator[list[Connection]]:
    """A sidecar that has answered each request once."""
    folder.mkdir()
    async with fake_control_api() as control:
        publish(control, None)
        if stated:
            levels: dict[str, Sensitivity] = {
                f"other-{number}*": "critical" for number in range(PATTERNS - 1)
            }
            control.publish({SOURCES: sources_document({**levels, "*": "low"})})
        sources = (CONFIGURED,) if stated else ()
        async with running_sidecar(folder, control, sources=sources) as running:
            connections = [Connection(running.ports[0], turn) for _ in range(CONNECTIONS)]
            await turn.take(connections, mixed.REQUESTS)
            await drained(running)
            yield connections
            await drained(running)


async def figure(count: int) -> Figure:
    """The ratio of the rates with levels and without, which are requests by CPU second."""
    turn = Turn(mixed.evaluations(EVALUATE_KEY).requests)
    with directory() as folder:
        async with (
            ready(folder / "without", turn, stated=False) as without,
            ready(folder / "with", turn, stated=True) as beside,
        ):
            pairs = []
            for number in range(ROUNDS):
                # Each goes first in every other round.
                order = (without, beside) if number % 2 else (beside, without)
                rates = {id(each): await turn.take(each, count) for each in order}
                pairs.append((rates[id(without)], rates[id(beside)]))
    ratio = statistics.median(floored / plain for plain, floored in pairs)
    ours, theirs = (statistics.median(each) for each in zip(*pairs, strict=True))
    value = f"{theirs:,.0f} against {ours:,.0f} a CPU second"
    return Figure("evaluate, with levels of all sources", value, ratio, ">= 0.9", ratio >= 0.9)


async def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else mixed.REQUESTS
    print(f"{len(CORES)} cores, {count} requests a round, {ROUNDS} rounds", flush=True)
    print((await figure(count)).row(), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
