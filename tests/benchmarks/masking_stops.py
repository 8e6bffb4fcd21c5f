"""How long masking one request's texts keeps others waiting:
`python -m tests.benchmarks.masking_stops [ROUNDS]`, about half a minute a round.

A real sidecar and a real control API, both with masking on. A client asks `/health` again and again
over one connection, while another sends one request whose texts take the longest to mask. Each
answer's time is a stop: the longest of a round, and the median of those while the request was in
progress; of both, the median over the rounds. Floor: the same client with nothing beside it. Two
figures for each: the CPU that the service's event loop used meanwhile, which is what a quiet
machine would see and what is held against the target, and by the clock. An answer of the control
API takes several turns of its loop.
"""

import http.client
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.measure import EVALUATE, Figure, directory
from tests.support.stack import Service, Stack, call
from tests.support.waiting import until

ROUNDS = 3
MOST_MS = 100.0
NUMBERS, PHONES = "4 ", "600 123 456 "
LONG = (NUMBERS * 32_700)[:65_400]
"""The worst query: one run of digits and groups that may be cards, ids or phone numbers."""
SHORT = (PHONES * 21)[:-1]
"""The worst text for its length: each number is looked up in eleven numbering plans."""


class Stop(NamedTuple):
    """Milliseconds."""

    cpu: float
    wall: float


class Beside(threading.Thread):
    """Asks `/health` in a closed loop, a millisecond apart; `took` has milliseconds an answer, of
    CPU and by the clock."""

    def __init__(self, service: Service) -> None:
        super().__init__(daemon=True)
        self._connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
        self._used = Path(f"/proc/{service.pid}/schedstat")
        self.took: list[Stop] = []
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            started, used = time.perf_counter(), self._cpu()
            self._connection.request("GET", "/health")
            self._connection.getresponse().read()
            wall, cpu = time.perf_counter() - started, self._cpu() - used
            self.took.append(Stop(cpu * 1000, wall * 1000))
            time.sleep(0.001)

    def _cpu(self) -> float:
        """CPU seconds of the main thread, which runs the event loop."""
        return int(self._used.read_text().split()[0]) / 1e9

    def ended(self) -> list[Stop]:
        self._over.set()
        self.join()
        self._connection.close()
        return self.took


@dataclass
class Case:
    """A request to one of the services."""

    name: str
    service: Service
    path: str
    key: str
    body: dict[str, Any]

    def send(self) -> None:
        status, answer = call(
            self.service.port, "POST", self.path, self.body, key=self.key, timeout=120
        )
        assert status in (200, 201, 204), answer


def cases(stack: Stack) -> Iterator[Case]:
    # All differ, since a text that occurs twice is masked once.
    long = [f"{number} {LONG}" for number in range(15)]
    batch = {"items": [stack.ask(query=each) for each in long], "semantics": "all"}
    short = [(f"{number} {SHORT}", f"{SHORT} {number}") for number in range(100)]
    many = {"items": [stack.ask(query=a, user_id=b) for a, b in short], "semantics": "all"}
    for service in (stack.sidecar, stack.control):
        name = service.name
        yield Case(f"batch of 1 MB, {name}", service, f"{EVALUATE}/batch", stack.agent_key, batch)
        yield Case(
            f"batch of 100 short texts, {name}",
            service,
            f"{EVALUATE}/batch",
            stack.agent_key,
            many,
        )
        yield Case(
            f"query of 64 KB, {name}", service, EVALUATE, stack.agent_key, stack.ask(query=LONG)
        )
    status, event = call(stack.control.port, "POST", EVALUATE, stack.ask(), key=stack.agent_key)
    assert status == 200, event
    action = {
        "event_id": event["event_id"],
        "action_type": "summary_sent",
        "detail": {"texts": long},
    }
    yield Case(
        "lineage of 1 MB, control API", stack.control, "/v1/audit/lineage", stack.agent_key, action
    )


@contextmanager
def masking_stack(place: Path) -> Iterator[Stack]:
    stack = Stack(place)
    stack.control.environ["SLUICE_PII_MASKING"] = "1"
    try:
        yield stack.start()
    finally:
        stack.stop()


def stops(service: Service, work: Callable[[], object]) -> list[Stop]:
    """How long each answer took while `work` ran."""
    beside = Beside(service)
    beside.start()
    until("it answers", lambda: beside.took)
    work()
    return beside.ended()


def told(rounds: list[list[Stop]]) -> tuple[Stop, Stop]:
    """The longest and the median, each the median of the rounds."""
    return over(rounds, max), over(rounds, statistics.median)


def over(rounds: list[list[Stop]], of: Callable[[list[float]], float]) -> Stop:
    return Stop(
        statistics.median(of([stop.cpu for stop in each]) for each in rounds),
        statistics.median(of([stop.wall for stop in each]) for each in rounds),
    )


def shown(longest: Stop, median: Stop) -> str:
    return (
        f"longest {longest.cpu:.0f} ms CPU, {longest.wall:.0f} by the clock; "
        f"median {median.cpu:.1f}, {median.wall:.1f}"
    )


def figures(rounds: int) -> Iterator[Figure]:
    with directory() as place, masking_stack(place) as stack:
        floor = {}
        for service in (stack.sidecar, stack.control):
            longest, median = told([stops(service, lambda: time.sleep(1)) for _ in range(rounds)])
            floor[service.name] = median.wall
            name = f"nothing beside it, {service.name}"
            yield Figure(name, shown(longest, median), None, "", True)
        for case in cases(stack):
            case.send()  # loads what is loaded late
            began = time.perf_counter()
            longest, median = told([stops(case.service, case.send) for _ in range(rounds)])
            took = (time.perf_counter() - began) / rounds
            value = f"{shown(longest, median)}; took {took:.1f} s"
            ratio = median.wall / floor[case.service.name]
            yield Figure(case.name, value, ratio, "<= 100 ms", longest.cpu <= MOST_MS)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    for figure in figures(rounds):
        print(figure.row(), flush=True)


if __name__ == "__main__":
    main()
