"""Renders refusals as Bedrock's errors. AWS's clients raise the class that the header names."""

from http import HTTPStatus

from sidecar.protocols.messages import FetchedResponse, RefusalResponse
from sidecar.protocols.shared.error_bodies import error_response

_TYPES = {
    400: "ValidationException",
    403: "AccessDeniedException",
    502: "BadGatewayException",
    503: "ServiceUnavailableException",
}
_OTHER = "InternalServerException"


def render_refusal(refusal: RefusalResponse) -> FetchedResponse:
    kind = _TYPES.get(refusal.status, _OTHER)
    return error_response(
        refusal,
        {"error": HTTPStatus(refusal.status).phrase, "__type": kind},
        (b"X-Amzn-ErrorType", kind.encode()),
    )
