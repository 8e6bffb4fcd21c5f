"""The log of this process: one line an entry, in the form that `policies.ground.log_line` gives it,
with the request's id. Knows nothing of what is logged.

Of what a caller sent, a line holds the request id alone, which was checked; secrets and personal
text are never passed to a logger.
"""

import logging
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TextIO

from policies.ground.log_line import LEVELS, Entry, json_line, text_line

_VALUES = "[parameters: "
REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
_log = logging.getLogger("sluice")


class JsonLogFormatter(logging.Formatter):
    """Entries as `render` shows them; `now` is the wall clock in microseconds."""

    def __init__(self, render: Callable[[Entry], str], now: Callable[[], int]) -> None:
        super().__init__()
        self._render = render
        self._now = now

    def format(self, record: logging.LogRecord) -> str:
        return self._render(
            Entry(
                time=self._now(),
                level=record.levelname.lower(),
                logger=record.name,
                message=record.getMessage(),
                request_id=REQUEST_ID.get(),
                error=self.formatException(record.exc_info) if record.exc_info else None,
            )
        )

    def formatException(self, ei: Any) -> str:  # noqa: N802  # the standard library's name
        """The trace, without the values of a statement that failed: they are what callers sent."""
        lines = super().formatException(ei).encode("utf-8", "backslashreplace").decode()
        return "\n".join(line for line in lines.splitlines() if not line.startswith(_VALUES))


def configure(
    level: str, now: Callable[[], int], stream: TextIO | None = None, form: str | None = None
) -> None:
    """Send every logger's entries of at least `level` to `stream`, standard error by default.
    `form` is one of `FORMATS`; without one, a terminal gets text and anything else JSON. A level or
    a form that there is not counts as none: the settings complain of it."""
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    text = stream.isatty() if form not in ("json", "text") else form == "text"
    handler.setFormatter(JsonLogFormatter(text_line if text else json_line, now))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # A library's lines may hold what callers sent: a driver's, each statement's values.
    root.setLevel(logging.WARNING)
    _log.setLevel(level.upper() if level in LEVELS else logging.INFO)
    # Their lines repeat what a caller sent, or tell every wake-up.
    for noisy in ("aiohttp.server", "aiohttp.access", "watchfiles", "alembic", "sqlalchemy.engine"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)


def catch_all() -> None:
    """What would be written past the log goes to it: warnings, and exceptions that no code
    caught."""
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
