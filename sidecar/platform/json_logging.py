"""The log of this process: one line per entry, in the format of `policies.ground.log_line`. Knows
nothing of what is logged.

A call that logs about a request passes its id: `extra=about(request_id)`. The id was checked, and
is the only caller input that a line may hold. Secrets and personal data are never logged.

`control_api/json_logging.py` is the same in most lines. It stays separate: the services don't
import each other, and `policies` may not import `logging`. The control API takes the request id
from a context variable, and drops SQL parameters from traces.
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
    """Renders entries with `render`; `now` is the wall clock in microseconds."""

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

    `form` is one of `FORMATS`; without it, a terminal gets text and anything else JSON. An unknown
    level or format is ignored here: the settings report it.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    text = stream.isatty() if form not in ("json", "text") else form == "text"
    handler.setFormatter(JsonFormatter(text_line if text else json_line, now))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Libraries log what callers sent; a database driver logs each statement's values.
    root.setLevel(logging.WARNING)
    _log.setLevel(level.upper() if level in LEVELS else logging.INFO)


def catch_all() -> None:
    """Send to the log what would bypass it: warnings and uncaught exceptions."""
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
