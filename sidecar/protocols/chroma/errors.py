"""Renders refusals as Chroma's errors. Its client raises the class of `chromadb.errors` that the
member `error` names, and a bare `Exception` for any other name."""

from sidecar.protocols.messages import FetchedResponse, RefusalResponse
from sidecar.protocols.shared.error_bodies import error_response

_NAMES = {
    400: "InvalidArgumentError",
    403: "AuthorizationError",
    404: "NotFoundError",
    413: "BatchSizeExceededError",
}
# Any other error is the sidecar's or the data source's, and no fault of the request.
_OTHER = "InternalError"


def render_refusal(refusal: RefusalResponse) -> FetchedResponse:
    return error_response(refusal, {"error": _NAMES.get(refusal.status, _OTHER)})
