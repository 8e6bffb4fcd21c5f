"""The `traceparent` headers of the request that this task serves: set at the HTTP edge, read where
a decision is traced."""

from collections.abc import Sequence
from contextvars import ContextVar

TRACEPARENT: ContextVar[Sequence[str]] = ContextVar("traceparent", default=())
