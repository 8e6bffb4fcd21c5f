"""What can go wrong with a data source, as the proxy's errors."""

import ssl
from collections.abc import Awaitable
from typing import TypeVar

from sidecar.http.messages.response_head import BadResponse
from sidecar.proxy.proxy_metrics import UpstreamUnreachable, UpstreamUnverified

Connected = TypeVar("Connected")

BROKEN = (BadResponse, OSError)
"""What sending a request, or reading its response, raises because of the data source."""


async def connected(connecting: Awaitable[Connected]) -> Connected:
    """The connection that a dialler or a pool opens. Raises `UpstreamUnverified` or
    `UpstreamUnreachable`."""
    try:
        return await connecting
    except ssl.SSLError as error:
        raise UpstreamUnverified from error
    except OSError as error:
        raise UpstreamUnreachable from error
