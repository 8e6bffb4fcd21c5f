"""Configures this process's log: one line per entry, in the form of `policies.ground.log_line`.

The only caller's input in a line is the request id, which is validated. Secrets and personal data
are never passed to a logger.
"""

import logging
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TextIO

from policies.ground.log_line import Entry, entry_of, renderer, threshold

_STATEMENT_VALUES = "[parameters: "
REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
_log = logging.getLogger("sluice")


class JsonLogFormatter(logging.Formatter):
    """Formats entries with `render`. `now` is the wall clock in microseconds."""

    def __init__(self, render: Callable[[Entry], str], now: Callable[[], int]) -> None:
        super().__init__()
        self._render = render
        self._now = now

    def format(self, record: logging.LogRecord) -> str:
        error = self.formatException(record.exc_info) if record.exc_info else None
        return self._render(entry_of(record, self._now(), REQUEST_ID.get(), error))

    def formatException(self, ei: Any) -> str:  # noqa: N802  # the standard library's name
        """The trace, without the values of a failed SQL statement: callers sent them."""
        # A lone surrogate, as in a file name that is not UTF-8, could not be written to the stream.
        lines = super().formatException(ei).encode("utf-8", "backslashreplace").decode()
        kept = (line for line in lines.splitlines() if not line.startswith(_STATEMENT_VALUES))
        return "\n".join(kept)


def configure(
    level: str, now: Callable[[], int], stream: TextIO | None = None, form: str | None = None
) -> None:
    """Send log entries to `stream`, standard error by default, in `form`: the service's own from
    `level` up, those of libraries from warnings up."""
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLogFormatter(renderer(form, terminal=stream.isatty()), now))
    root = logging.getLogger()
    # Replace, not add: a handler that a library installed would log a second line.
    root.handlers[:] = [handler]
    # Below warnings, libraries may log what callers sent, such as a statement's values.
    root.setLevel(logging.WARNING)
    _log.setLevel(threshold(level))
    # These repeat what a caller sent even in warnings, or log every wake-up.
    for noisy in ("aiohttp.server", "aiohttp.access", "watchfiles", "alembic", "sqlalchemy.engine"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)


def catch_all() -> None:
    """Send warnings and uncaught exceptions to the log too."""
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    sys.unraisablehook = lambda found: _log.error(
        "an exception was ignored", exc_info=found.exc_value
    )
    threading.excepthook = lambda found: _log.error("a thread died", exc_info=found.exc_value)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        _log.critical("the process ends", exc_info=(kind, error, trace))
