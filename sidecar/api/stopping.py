"""The route that stops the sidecar: for a Job whose sidecar is an ordinary container, which would
otherwise outlive the Job's own work. It is served on a port of loopback alone, if at all.

Knows no signal and no listener: what stops the process is an argument.
"""

import logging
from collections.abc import Callable, Mapping

from sidecar.api.route import ApiReply, ApiRequest, ApiRoute

PATH = "/quitquitquit"
log = logging.getLogger(__name__)


def stop_routes(stop: Callable[[], None]) -> Mapping[str, ApiRoute]:
    """The table of the route. `stop` has the effect of SIGTERM, and returns at once."""

    async def handle(_request: ApiRequest, _body: bytes) -> ApiReply:
        log.info("asked to stop at %s", PATH)
        # What is in progress is finished first, this answer included.
        stop()
        return ApiReply(b'{"status":"stopping"}')

    # It needs no key: who speaks on the pod's loopback can only end its own access to data.
    return {PATH: ApiRoute("stop", ("POST",), None, handle, programs_only=True)}
