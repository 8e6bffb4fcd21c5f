"""What a sidecar and a control API said to each other, as files: read, replayed and compared."""

from __future__ import annotations

import base64
import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

RECORDED = Path(__file__).with_name("recorded")
KEYS = ("log.key", "sidecar.key", "agent.key")


class Exchange(NamedTuple):
    """One request of the sidecar, and its answer."""

    method: str
    path: str
    headers: dict[str, str]
    """Those that mean something to the control API, except for the key."""
    body: bytes
    status: int
    answer: Any

    @property
    def route(self) -> str:
        return f"{self.method} {self.path.partition('?')[0]}"

    def to_json(self) -> dict[str, Any]:
        return self._asdict() | {"body": base64.b64encode(self.body).decode()}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Exchange:
        return cls(**found | {"body": base64.b64decode(found["body"])})


def read(version: str) -> list[Exchange]:
    """The exchanges of a version's recording, in their order."""
    found = json.loads((RECORDED / version / "exchanges.json").read_text())
    return [Exchange.from_json(each) for each in found]


def restore(version: str, data: Path, of: str = ".") -> None:
    """Make `data` the data directory of that version's control API, before the first exchange, or
    that of the recording in the folder `of`."""
    recorded = RECORDED / version / of
    data.mkdir(mode=0o700)
    with sqlite3.connect(data / "sluice.db") as database:
        database.executescript((recorded / "database.sql").read_text())
    database.close()
    for name in KEYS:
        if (recorded / name).exists():
            copy = data / name
            copy.write_text((recorded / name).read_text())
            copy.chmod(0o600)


def missing(recorded: Any, answered: Any, where: str = "") -> list[str]:
    """What a client that knows `recorded` would not find in `answered`: fields that are gone, or of
    another type. Fields may be added. Of a list, the first element stands for all."""
    if isinstance(recorded, dict) and isinstance(answered, dict):
        return [
            line
            for name, value in recorded.items()
            for line in (
                missing(value, answered[name], f"{where}.{name}")
                if name in answered
                else [f"{where}.{name} is gone"]
            )
        ]
    if isinstance(recorded, list) and isinstance(answered, list):
        if recorded and not answered:
            return [f"{where} is empty"]
        return missing(recorded[0], answered[0], f"{where}[0]") if recorded else []
    if type(recorded) is not type(answered):
        return [f"{where} was {recorded!r}, and is {answered!r}"]
    return []
