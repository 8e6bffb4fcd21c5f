"""`python -m sidecar` in the process of the tests: to start another one costs more than all that is
claimed of its arguments."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from policies.ground.process import json_logging
from sidecar.__main__ import main


def run_main(patch: pytest.MonkeyPatch, *arguments: str, **environ: str) -> int:
    """Its exit code. What it logs goes to this process's log (`caplog`)."""
    patch.setattr(json_logging, "configure", lambda *_, **__: None)
    patch.setattr(json_logging, "catch_all", lambda _service: None)
    for name in os.environ:
        if name.startswith("SLUICE_"):
            patch.delenv(name)
    for name, value in environ.items():
        patch.setenv(name, value)
    patch.setattr(sys, "argv", ["sluice sidecar", *arguments])
    with _signals_kept():
        return main()


@contextmanager
def _signals_kept() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
