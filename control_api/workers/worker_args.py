"""What a worker is told on its command line: which it is, and what it inherits. Opens nothing."""

import socket
from dataclasses import asdict, dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class WorkerArgs:
    """The worker `index` of `count`. The rest are file descriptors: of sockets that are listened on
    already, for the API and for the metrics where they have a port of their own, and of a pipe that
    takes a byte once this worker serves."""

    index: int
    count: int
    api: tuple[int, ...]
    metrics: tuple[int, ...]
    ready: int

    def to_argument(self) -> str:
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_argument(cls, text: str) -> "WorkerArgs":
        """`ValueError` where nobody of ours wrote it."""
        try:
            wire: dict[str, Any] = orjson.loads(text)
            api, metrics = (tuple(map(int, wire.pop(name))) for name in ("api", "metrics"))
            return cls(api=api, metrics=metrics, **wire)
        except (TypeError, LookupError, AttributeError) as error:
            raise ValueError("it is no worker's place") from error


def inherited(descriptors: tuple[int, ...]) -> list[socket.socket]:
    """The sockets behind these descriptors."""
    return [socket.socket(fileno=descriptor) for descriptor in descriptors]
