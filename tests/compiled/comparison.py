"""Gives both forms the same seeds, and finds the first outcome in which they differ."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FORMS = {"compiled": "compiled", "pure": "pure Python"}
BATCH = 1000


class FormsDiffer(AssertionError):
    """the compiled core gives another outcome than the same files as Python"""


class Worker:
    """A process that runs one form of the core."""

    def __init__(self, form: str, tree: Path) -> None:
        command = [sys.executable, "-m", "tests.compiled.worker", form]
        # The tree's own packages are found first: it is the current folder.
        self.process = subprocess.Popen(
            command, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        said = self.answer()
        assert said == FORMS[form], f"asked for `{form}`, but this is `{said}`"

    def ask(self, line: str) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")


@contextmanager
def workers(tree: Path) -> Iterator[list[Worker]]:
    started: list[Worker] = []
    try:
        for form in FORMS:
            started.append(Worker(form, tree))
        yield started
    finally:
        for worker in started:
            worker.process.kill()
            worker.process.communicate()


def compare(tree: Path, count: int, first: int = 0) -> Iterator[int]:
    """Compare `count` decisions and records, by seeds from `first`. Yields how many are done, and
    raises `FormsDiffer`."""
    with workers(tree) as pair:
        for done in range(0, count, BATCH):
            seed, size = first + done // BATCH, min(BATCH, count - done)
            if len(set(_both(pair, f"{seed} {size}"))) != 1:
                one, other = (json.loads(each) for each in _both(pair, f"{seed} {size} show"))
                differing = (two for two in zip(one, other, strict=False) if two[0] != two[1])
                compiled, pure = next(differing, (f"{len(one)} outcomes", f"{len(other)} outcomes"))
                raise FormsDiffer(f"seed {seed}:\ncompiled  {compiled}\npure      {pure}")
            yield done + size


def _both(pair: list[Worker], line: str) -> list[str]:
    for worker in pair:
        worker.ask(line)
    answers = [worker.answer() for worker in pair]
    assert all(answers), "a worker ended; its error is above"
    return answers
