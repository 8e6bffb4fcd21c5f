"""Log lines: one JSON object each, with the request's id. Knows nothing of what is logged.

Nothing that a caller sent stands in a line but the request id, which was checked; secrets and
personal text are never passed to a logger.
"""

import logging
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TextIO

import orjson

from policies.ground.canonical import rfc3339

_VALUES = "[parameters: "
REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)


class JsonLines(logging.Formatter):
    """`{ts, level, logger, message, request_id?, error?}`."""

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__()
        self._now = now

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": rfc3339(self._now()),
            "level": record.levelname.lower(),
            "logger": record.name,
            # A file's name may hold bytes that are no UTF-8.
            "message": record.getMessage().encode("utf-8", "backslashreplace").decode(),
        }
        if request_id := REQUEST_ID.get():
            line["request_id"] = request_id
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode("utf-8", "replace")

    def formatException(self, ei: Any) -> str:  # noqa: N802  # the standard library's name
        """The trace, without the values of a statement that failed: they are what callers sent."""
        lines = super().formatException(ei).encode("utf-8", "backslashreplace").decode()
        return "\n".join(line for line in lines.splitlines() if not line.startswith(_VALUES))


def configure(level: str, now: Callable[[], int], stream: TextIO = sys.stderr) -> None:
    """Send every logger's lines of at least `level` to `stream`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(now))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Their lines repeat what a caller sent, or tell every wake-up.
    for noisy in ("aiohttp.server", "aiohttp.access", "watchfiles", "alembic", "sqlalchemy.engine"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
