"""Which revision of its policy set a tenant has after a request's last write. Knows no write."""

from contextvars import ContextVar

HEADER = "X-Sluice-Revision"
WRITTEN: ContextVar[int | None] = ContextVar("revision", default=None)
