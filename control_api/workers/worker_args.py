"""A worker's command-line argument: which worker it is, and what it inherits. Opens nothing."""

import socket
from dataclasses import asdict, dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class WorkerArgs:
    """The worker `index` of `count`, and its file descriptors: of the listening sockets for the API
    and for the metrics (if they have their own port), and of the pipe that the worker writes a byte
    to once it serves."""

    index: int
    count: int
    api: tuple[int, ...]
    metrics: tuple[int, ...]
    ready: int

    def to_argument(self) -> str:
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_argument(cls, text: str) -> "WorkerArgs":
        """The reverse of `to_argument`. Raises `ValueError` for anything else."""
        try:
            wire: dict[str, Any] = orjson.loads(text)
            # Integers, or this raises: the descriptors are opened as they are.
            api, metrics = (tuple(map(int, wire.pop(name))) for name in ("api", "metrics"))
            return cls(api=api, metrics=metrics, **wire)
        except (TypeError, LookupError, AttributeError) as error:
            raise ValueError("not a worker's argument") from error


def inherited(descriptors: tuple[int, ...]) -> list[socket.socket]:
    """The sockets behind these descriptors."""
    return [socket.socket(fileno=descriptor) for descriptor in descriptors]
