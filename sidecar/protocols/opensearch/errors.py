"""Renders refusals as the errors of OpenSearch and Elasticsearch: an exception with its type, its
reason and its causes."""

from sidecar.protocols.messages import FetchedResponse, RefusalResponse
from sidecar.protocols.shared.error_bodies import error_response

_TYPES = {400: "illegal_argument_exception", 403: "security_exception"}
# The servers' type of an error that is described by its status alone.
_OTHER = "status_exception"


def render_refusal(refusal: RefusalResponse) -> FetchedResponse:
    cause = {"type": _TYPES.get(refusal.status, _OTHER), "reason": refusal.message}
    # Clients show the first of the causes.
    return error_response(
        refusal, {"error": {"root_cause": [cause], **cause}, "status": refusal.status}
    )
