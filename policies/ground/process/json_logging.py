"""Configures this process's log: one line per entry, in the form of `policies.ground.log_line`.

The only input from a caller in a line is the request id, which is validated. It comes from the log
call (`extra=about(request_id)`), else from the context variable `REQUEST_ID`. Secrets and personal
data are never passed to a logger.
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


class JsonFormatter(logging.Formatter):
    """A `logging` formatter that renders each entry with the function `render`, as JSON or text.
    `now` returns wall-clock time in microseconds since 1970 UTC."""

    def __init__(self, render: Callable[[Entry], str], now: Callable[[], int]) -> None:
        super().__init__()
        self._render = render
        self._now = now

    def format(self, record: logging.LogRecord) -> str:
        error = self.formatException(record.exc_info) if record.exc_info else None
        request_id = getattr(record, "request_id", None) or REQUEST_ID.get()
        return self._render(entry_of(record, self._now(), request_id, error))

    def formatException(self, ei: Any) -> str:  # noqa: N802  # the standard library's name
        """Return the traceback without the values of a failed SQL statement, since callers sent
        those."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(line for line in lines if not line.startswith(_STATEMENT_VALUES))


def about(request_id: str | None) -> dict[str, str | None]:
    """Return the `extra` argument of a log call, so that its line names this request."""
    return {"request_id": request_id}


def configure(
    service: str,
    level: str,
    now: Callable[[], int],
    stream: TextIO | None = None,
    form: str | None = None,
) -> None:
    """Send log entries to `stream`, standard error by default, in `form` (`log_line.FORMATS`). The
    logger `service` and those below it log from `level` up, those of libraries from warnings up."""
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(renderer(form, terminal=stream.isatty()), now))
    root = logging.getLogger()
    # Replace, not add: a handler that a library installed would log a second line.
    root.handlers[:] = [handler]
    # Below warnings, libraries may log what callers sent, such as a statement's values.
    root.setLevel(logging.WARNING)
    logging.getLogger(service).setLevel(threshold(level))
    # These repeat what a caller sent even in warnings, or log every wake-up.
    for noisy in ("aiohttp.server", "aiohttp.access", "watchfiles", "alembic", "sqlalchemy.engine"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)


def catch_all(service: str) -> None:
    """Send Python's warnings and uncaught exceptions to the log too, the latter by the logger
    `service`."""
    log = logging.getLogger(service)

    def uncaught(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if issubclass(kind, KeyboardInterrupt):  # Ctrl-C is no fault
            sys.__excepthook__(kind, error, trace)
        else:
            log.critical("the process ends", exc_info=(kind, error, trace))

    logging.captureWarnings(True)
    sys.excepthook = uncaught
    sys.unraisablehook = lambda found: log.error(
        "an exception was ignored", exc_info=found.exc_value
    )
    threading.excepthook = lambda found: log.error("a thread died", exc_info=found.exc_value)
