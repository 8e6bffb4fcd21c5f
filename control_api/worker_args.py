"""Defines the arguments that the supervisor passes to a worker process: its number, and the sockets
that it listens on."""

import socket
from dataclasses import asdict, dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class WorkerArgs:
    """The arguments of a worker process: its number `index` of `count`, and its file descriptors.
    `api` and `metrics` are listening sockets; `metrics` is empty unless the metrics have a port of
    their own. `ready` is the pipe to which the worker writes a byte once it serves."""

    index: int
    count: int
    api: tuple[int, ...]
    metrics: tuple[int, ...]
    ready: int

    def to_argument(self) -> str:
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_argument(cls, text: str) -> "WorkerArgs":
        """Parse the result of `to_argument`. Raise `ValueError` if `text` is not such an
        argument."""
        try:
            wire: dict[str, Any] = orjson.loads(text)
            # `int` raises for anything else: the descriptors are opened without another check.
            api, metrics = (tuple(map(int, wire.pop(name))) for name in ("api", "metrics"))
            return cls(api=api, metrics=metrics, **wire)
        except (TypeError, LookupError, AttributeError) as error:
            raise ValueError("not a worker's argument") from error


def inherited(descriptors: tuple[int, ...]) -> list[socket.socket]:
    """Make sockets from these inherited file descriptors, which the sockets then own."""
    return [socket.socket(fileno=descriptor) for descriptor in descriptors]
