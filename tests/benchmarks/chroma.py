"""A real Chroma through the reverse proxy: the nearest documents to an embedding of 384 dimensions.

python -m tests.benchmarks.chroma
"""

import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests import servers
from tests.benchmarks.measure import REST, Figure, directory, load, request
from tests.benchmarks.memory import sidecar
from tests.benchmarks.turns import Run, held, median, ratio, rounds_of
from tests.support.ports import free_port
from tests.support.stack import Service, call
from tests.support.waiting import AWAY, until

_DATABASE = "/api/v2/tenants/default_tenant/databases/default_database"
_DOCUMENTS = 1000
_DIMENSIONS = 384


@contextmanager
def chroma(directory: Path, cores: set[int]) -> Iterator[tuple[int, bytes]]:
    """Its port, and the bytes of a query."""
    port = free_port()
    program = str(Path(sys.executable).with_name("chroma"))
    place = ["--path", str(directory / "chroma"), "--host", "127.0.0.1", "--port", str(port)]
    environ = {"ANONYMIZED_TELEMETRY": "false"}
    log = directory / "chroma.log"
    server = Service("chroma", [program, "run", *place], environ, log, port, cores)
    server.start(ready=False)
    try:
        heartbeat = "/api/v2/heartbeat"
        until("chroma is up", lambda: call(port, "GET", heartbeat)[0] == 200, despite=AWAY)
        yield port, _filled(port)
    finally:
        server.stop()


def _filled(port: int) -> bytes:
    """Fill the collection `handbook`, the same in every run."""
    chance = random.Random(7)

    def vector() -> list[float]:
        return [round(chance.uniform(-1, 1), 4) for _ in range(_DIMENSIONS)]

    status, made = call(port, "POST", f"{_DATABASE}/collections", {"name": "handbook"})
    assert status == 200, made
    documents = {
        "ids": [str(number) for number in range(_DOCUMENTS)],
        "documents": [f"paragraph {number} of the handbook" for number in range(_DOCUMENTS)],
        "embeddings": [vector() for _ in range(_DOCUMENTS)],
    }
    status, added = call(port, "POST", f"{_DATABASE}/collections/{made['id']}/add", documents)
    assert status == 201, added
    path = f"{_DATABASE}/collections/{made['id']}/query"
    asked = {"query_embeddings": [vector()], "n_results": 5, "include": ["documents", "distances"]}
    return request("POST", path, asked)


def figures(quick: bool) -> Iterator[Figure]:
    if servers.find("chroma") is None:
        print(f"no chroma here: {servers.how('chroma')}", file=sys.stderr)
        return
    seconds, rounds = (1.5, 1) if quick else (5.0, 5)
    with ExitStack() as stack:
        made = stack.enter_context(directory())
        at, sent = stack.enter_context(chroma(made, REST))
        name = "chroma://files/default_tenant/default_database/handbook"
        names = {name: {"source_id": "handbook", "sensitivity": "low"}}
        port, _ = stack.enter_context(sidecar(made / "stack", at, kind="chroma", names=names))
        for many in (16, 1):
            runs: dict[str, Run] = {
                "ours": partial(load, port, sent, many, seconds),
                "direct": partial(load, at, sent, many, seconds),
            }
            found = rounds_of(runs, rounds)
            value = f"{median(found, 'ours', 'rate'):,.0f}/s against "
            value += f"{median(found, 'direct', 'rate'):,.0f}/s"
            # One connection measures the added latency, not the rate: it is shown.
            target = 0.9 if many > 1 else None
            rate = ratio(found, "direct", "rate")
            yield held(f"Chroma query to direct, {many} connections", value, rate, target, ">=")


if __name__ == "__main__":
    for figure in figures(quick=False):
        print(figure.row(), flush=True)
