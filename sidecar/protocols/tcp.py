"""Any protocol at all, of which nothing is read: a connection is decided once, as reading the whole
source (`sidecar/proxy/opaque.py`). What comes to such a source as an HTTP request came by mistake,
and is covered by no route.

Knows no request.
"""

from collections.abc import Callable

from sidecar.http.request_target import Target
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import RouteMatch
from sidecar.settings.model import Source


class Tcp(SourceProtocol):
    """Without routes."""

    def __init__(self, _source: Source, _monotonic: Callable[[], float]) -> None:
        super().__init__()

    def match(self, _method: str, _target: Target) -> RouteMatch | None:
        return None
