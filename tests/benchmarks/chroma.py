"""A Chroma server with some documents, and a query for the nearest of them. Knows no figure and no
proxy."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.measure import request
from tests.ports import free_port
from tests.stack import Service, call, wait_until

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
        wait_until("chroma is up", lambda: call(port, "GET", heartbeat)[0] == 200, 60)
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
