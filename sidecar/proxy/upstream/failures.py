"""What sending a request, or reading its response, raises because of the data source."""

from sidecar.http.messages.response_head import BadResponse

BROKEN = (BadResponse, OSError)
