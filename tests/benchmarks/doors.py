"""What a check costs beside an evaluation: `python -m tests.benchmarks.doors [REQUESTS [ROUNDS]]`.

One sidecar in one process, asked the same questions at `/v1/context/evaluate` and at its HTTP check
doors, without a network and in turn. A rate is requests by CPU second of all threads, record and
disk included; the ratio is the median of the ratios pair by pair. `anew` are checks whose heads are
all different, so that none is remembered.
"""

import statistics
import sys
from collections.abc import Callable
from itertools import count as counted

import orjson
import uvloop

from tests.benchmarks.candidates import Connection, Turn, drained
from tests.benchmarks.measure import CORES, Figure, directory
from tests.sidecar.doors.http.checks import checks, question
from tests.support.fake_control_api import AGENT, EVALUATE_KEY, ROLE

REQUESTS, ROUNDS = 4000, 9
TARGET = 0.9
SOURCES = 100

Make = Callable[[int], bytes]
_numbers = counted()


def evaluation(number: int) -> bytes:
    """The question of `check`, as a call says it."""
    body = orjson.dumps(
        {
            "agent_id": AGENT,
            "agent_role": ROLE,
            "user_id": "ada",
            "source_id": f"rest://crm/customers/{number}",
            "source_type": "edge",
            "sensitivity_level": "medium",
        }
    )
    head = (
        f"POST /v1/context/evaluate HTTP/1.1\r\nHost: gateway\r\nX-API-Key: {EVALUATE_KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def check(door: str) -> Make:
    def make(number: int) -> bytes:
        user = [("X-Sluice-User", "ada")]
        return question(door, "GET", f"/customers/{number}", user, b"", EVALUATE_KEY)

    return make


def anew(door: str) -> Make:
    def make(number: int) -> bytes:
        # Envoy gives each request an id.
        fields = [("X-Sluice-User", "ada"), ("X-Request-ID", f"request-{next(_numbers)}")]
        return question(door, "GET", f"/customers/{number}", fields, b"", EVALUATE_KEY)

    return make


CONTENDERS: dict[str, Make] = {
    "evaluate": evaluation,
    "envoy_http": check("edge"),
    "forward_auth": check("nginx"),
    "envoy_http, anew": anew("edge"),
    "forward_auth, anew": anew("nginx"),
}


async def figures(many: int, requests: int, rounds: int) -> list[Figure]:
    with directory() as folder:
        async with checks(folder) as asked:
            port = asked.running.ports[0]
            turns, connections = {}, {}
            for name, make in CONTENDERS.items():
                turn = Turn([make(number % SOURCES) for number in range(requests)])
                turns[name] = turn
                connections[name] = [Connection(port, turn) for _ in range(many)]
                await turn.take(connections[name], requests)
            rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
            names = list(CONTENDERS)
            for number in range(rounds):
                # Each is the first of a round in turn.
                at = number % len(names)
                for name in (*names[at:], *names[:at]):
                    rates[name].append(await turns[name].take(connections[name], requests))
                await drained(asked.running)
    found = []
    for name in names[1:]:
        pairs = list(zip(rates["evaluate"], rates[name], strict=True))
        ratio = statistics.median(ours / evaluate for evaluate, ours in pairs)
        evaluate, ours = (statistics.median(each) for each in zip(*pairs, strict=True))
        value = f"{1e6 / ours:.1f} us CPU against {1e6 / evaluate:.1f}"
        title = f"{name}, {many} connections, to evaluate"
        shown = "" if "anew" in name else f">= {TARGET}"
        found.append(Figure(title, value, ratio, shown, ratio >= TARGET))
    return found


async def main() -> None:
    requests, rounds = (
        int(given) if given else usual
        for given, usual in zip((*sys.argv[1:3], "", "")[:2], (REQUESTS, ROUNDS), strict=True)
    )
    print(f"{len(CORES)} cores, {requests} requests a round, {rounds} rounds", flush=True)
    for many in (1, 16, 64):
        for each in await figures(many, requests, rounds):
            print(each.row(), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
