"""Any TCP protocol, passed through unread: each connection is decided once, as a read of the whole
source (`sidecar/proxy/pipeline/passthrough.py`). An HTTP request that arrives for such a source was
sent by mistake; no route covers it, so it is denied.
"""

from collections.abc import Callable

from sidecar.http.request_target import Target
from sidecar.protocols.protocol import RouteMatch, SourceProtocol
from sidecar.settings.model import Source


class Tcp(SourceProtocol):
    """A protocol without routes."""

    def __init__(self, _source: Source, _monotonic: Callable[[], float]) -> None:
        super().__init__()

    # Called only for stray HTTP: a connection is decided before it could get here.
    def match(self, _method: str, _target: Target) -> RouteMatch | None:
        return None
