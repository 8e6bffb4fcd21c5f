"""The log of this process: one line an entry, in the form that `policies.ground.log_line` gives it.
Knows nothing of what is logged.

Where an entry is about a request, the call that logs it says so: `extra=about(request_id)`. Of what
a caller sent, a line holds that id alone, which was checked; secrets and personal text are never
passed to a logger.
"""

import logging
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from policies.ground.log_line import LEVELS, Entry, json_line, text_line

_log = logging.getLogger("sidecar")


class JsonFormatter(logging.Formatter):
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
                request_id=getattr(record, "request_id", None),
                error=self.formatException(record.exc_info) if record.exc_info else None,
            )
        )


def about(request_id: str | None) -> dict[str, str | None]:
    """The `extra` of an entry about this request."""
    return {"request_id": request_id}


def configure(
    level: str, now: Callable[[], int], stream: TextIO | None = None, form: str | None = None
) -> None:
    """Send every logger's entries of at least `level` to `stream`, standard error by default.
    `form` is one of `FORMATS`; without one, a terminal gets text and anything else JSON. A level or
    a form that there is not counts as none: the settings complain of it."""
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    text = stream.isatty() if form not in ("json", "text") else form == "text"
    handler.setFormatter(JsonFormatter(text_line if text else json_line, now))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # A library's lines may hold what callers sent: a driver's, each statement's values.
    root.setLevel(logging.WARNING)
    _log.setLevel(level.upper() if level in LEVELS else logging.INFO)


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
