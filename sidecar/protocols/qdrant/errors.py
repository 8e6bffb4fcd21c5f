"""Renders refusals as Qdrant's errors, whose text its clients read from `status.error`."""

from sidecar.protocols.messages import FetchedResponse, RefusalResponse
from sidecar.protocols.shared.error_bodies import error_response


def render_refusal(refusal: RefusalResponse) -> FetchedResponse:
    own = {"status": {"error": refusal.message}, "time": 0.0, "result": None}
    return error_response(refusal, own)
