"""Configures this process's log: one line per entry, in the form of `policies.ground.log_line`.

A call that logs about a request passes its id: `extra=about(request_id)`. The id was checked, and
is the only caller input that a line may hold. Secrets and personal data are never logged.
"""

import logging
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from policies.ground.log_line import Entry, entry_of, renderer, threshold

_log = logging.getLogger("sidecar")


class JsonFormatter(logging.Formatter):
    """Renders entries with `render`; `now` is the wall clock in microseconds."""

    def __init__(self, render: Callable[[Entry], str], now: Callable[[], int]) -> None:
        super().__init__()
        self._render = render
        self._now = now

    def format(self, record: logging.LogRecord) -> str:
        error = self.formatException(record.exc_info) if record.exc_info else None
        request_id = getattr(record, "request_id", None)
        return self._render(entry_of(record, self._now(), request_id, error))


def about(request_id: str | None) -> dict[str, str | None]:
    """The `extra` of an entry about this request."""
    return {"request_id": request_id}


def configure(
    level: str, now: Callable[[], int], stream: TextIO | None = None, form: str | None = None
) -> None:
    """Send every logger's entries of at least `level` to `stream`, standard error by default, in
    `form`."""
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(renderer(form, terminal=stream.isatty()), now))
    root = logging.getLogger()
    # Replaced, not added: a handler that a library installed would log a second line.
    root.handlers[:] = [handler]
    # Below warnings, libraries log what callers sent.
    root.setLevel(logging.WARNING)
    _log.setLevel(threshold(level))


def catch_all() -> None:
    """Send to the log what would bypass it: warnings and uncaught exceptions."""
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    sys.unraisablehook = lambda found: _log.error(
        "an exception was ignored", exc_info=found.exc_value
    )
    threading.excepthook = lambda found: _log.error("a thread died", exc_info=found.exc_value)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):  # Ctrl-C is no fault
        sys.__excepthook__(kind, error, trace)
    else:
        _log.critical("the process ends", exc_info=(kind, error, trace))
