"""What every answer has: the headers, and the form of an error. Knows no route."""

from aiohttp import web

from policies.ground.errors import SluiceError

HEADERS = {
    "Server": "sluice",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Type": "application/json",
}


def error_response(error: SluiceError) -> web.Response:
    """The error's body and status. The connection is closed: the rest of a refused body may still
    be on its way."""
    response = web.Response(status=error.status, body=error.encoded(), headers=HEADERS)
    response.force_close()
    return response
