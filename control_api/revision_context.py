"""The revision of the tenant's policy set after the current request's last write, or None if the
request has written nothing."""

from contextvars import ContextVar

HEADER = "X-Sluice-Revision"
WRITTEN: ContextVar[int | None] = ContextVar("revision", default=None)
