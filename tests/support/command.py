"""The service's command line in the test's own process."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from control_api.__main__ import main

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """Run the service, or one of its commands, in this process. Returns its exit code and its
    output."""
    loggers = [logging.getLogger(), logging.getLogger("sluice")]
    before, levels = list(loggers[0].handlers), [each.level for each in loggers]
    for place, name in ((sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook")):
        monkeypatch.setattr(place, name, getattr(place, name))
    for name in [name for name in os.environ if "SLUICE" in name]:
        monkeypatch.delenv(name)

    def unhandled(*_: object) -> None:
        raise AssertionError("it does not end by itself")

    def run(*arguments: str, **environ: str) -> tuple[int, str]:
        given = {"DATA_DIR": str(tmp_path / "data"), "CONTROL_LISTEN": "127.0.0.1:0"}
        settings = {f"SLUICE_{name}": value for name, value in given.items()} | environ
        # A service that starts although it must not drains, and its code is 0.
        late = threading.Timer(20, os.kill, (os.getpid(), signal.SIGTERM))
        handler = signal.signal(signal.SIGTERM, unhandled)
        late.start()
        try:
            with monkeypatch.context() as patch:
                for name, value in settings.items():
                    patch.setenv(name, value)
                code = main([*arguments])
        finally:
            late.cancel()
            signal.signal(signal.SIGTERM, handler)
        return code, "".join(capsys.readouterr())

    yield run
    loggers[0].handlers[:] = before
    logging.captureWarnings(capture=False)
    for each, level in zip(loggers, levels, strict=True):
        each.setLevel(level)
