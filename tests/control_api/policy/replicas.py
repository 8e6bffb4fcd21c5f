"""Two control APIs on one PostgreSQL, asked at the same time."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.control_api import Answer, ControlApi

Write = Callable[[ControlApi], Answer]


@contextmanager
def two(folder: Path, url: str) -> Iterator[tuple[ControlApi, ControlApi]]:
    """Both with the same log key and the same keys of API; without policy files."""
    made: list[ControlApi] = []
    try:
        for name in ("one", "two"):
            api = ControlApi(folder / name, policies=None, database_url=url)
            if made:
                data = made[0].directory / "data"
                (folder / name / "data").mkdir(mode=0o700)
                for each in ("log.key", "first-start.json"):
                    shutil.copy(data / each, folder / name / "data")
            made.append(api.start())
        yield made[0], made[1]
    finally:
        for api in made:
            api.stop()


def at_once(apis: tuple[ControlApi, ControlApi], writes: tuple[Write, Write]) -> list[Answer]:
    """The answers to two writes that begin together, the first at the first replica."""
    answers: dict[int, Answer] = {}
    together = threading.Barrier(2)

    def run(at: int) -> None:
        together.wait()
        answers[at] = writes[at](apis[at])

    threads = [threading.Thread(target=run, args=(at,)) for at in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    return [answers[at] for at in range(2)]
