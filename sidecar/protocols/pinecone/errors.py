"""Renders refusals as Pinecone's errors. Its codes are those of gRPC."""

from sidecar.protocols.messages import FetchedResponse, RefusalResponse
from sidecar.protocols.shared.error_bodies import error_response

_CODES = {
    400: "INVALID_ARGUMENT",
    403: "PERMISSION_DENIED",
    408: "DEADLINE_EXCEEDED",
    413: "INVALID_ARGUMENT",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
}
_OTHER = "INTERNAL"


def render_refusal(refusal: RefusalResponse) -> FetchedResponse:
    error = {"code": _CODES.get(refusal.status, _OTHER), "message": refusal.message}
    return error_response(refusal, {"error": error, "status": refusal.status})
