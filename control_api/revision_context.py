"""The revision of the tenant's policy set after the current request's last write, or None before
one."""

from contextvars import ContextVar

HEADER = "X-Sluice-Revision"
WRITTEN: ContextVar[int | None] = ContextVar("revision", default=None)
