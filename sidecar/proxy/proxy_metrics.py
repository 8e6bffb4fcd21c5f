"""Counts what passes through the proxy: requests by their outcome, failures of data sources by
their cause, bytes. Labels come from closed sets: the source's kind, never its name.

Knows metrics. Of a request it knows only the outcome.
"""

from policies.ground.errors import UpstreamFailed
from sidecar.metrics.metrics import Metrics
from sidecar.protocols.protocol import ResponseTooLarge

UNDECIDED = "none"
"""The decision label of a request that needs no decision, or that failed before its decision."""

_STATUS_CLASSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx", "other", "other", "other", "other")
"""The label for each first digit of a three-digit status. Data sources may use any digit."""


class UpstreamUnreachable(UpstreamFailed):
    """the data source can't be reached"""

    incomplete = True


class UpstreamUnverified(UpstreamFailed):
    """the data source can't be verified"""

    incomplete = True


class UpstreamNoResponse(UpstreamFailed):
    """the data source sent no response that can be read"""

    incomplete = True


class UpstreamBrokeOff(UpstreamFailed):
    """the data source broke off its response"""

    incomplete = True


CAUSES: dict[type[UpstreamFailed], str] = {
    UpstreamUnreachable: "unreachable",
    UpstreamUnverified: "unverified",
    UpstreamNoResponse: "unanswered",
    UpstreamBrokeOff: "broken_off",
    ResponseTooLarge: "too_large",
}
_UNJUDGED = "unjudged"
"""The cause label of any other failure, such as a response whose contents the sidecar can't
check."""


class ProxyMetrics:
    """Counts the requests to one source and its failures, under the label of the source's kind."""

    def __init__(self, metrics: Metrics, kind: str) -> None:
        self._requests = metrics.requests
        self._failures = metrics.upstream_failures
        self._kind = kind

    def start(self) -> None:
        """Show failures, and the usual results of an allowed request, from 0 on. Otherwise a
        counter would first appear with its first event, and with a quiet agent that increase would
        be missed."""
        for cause in (*CAUSES.values(), _UNJUDGED):
            self._failures.start(self._kind, cause)
        for status in ("2xx", "5xx"):
            self._requests.start(self._kind, "ALLOW", status)

    def count_request(self, decision: str, status: int) -> None:
        """Count one request. `decision` is ALLOW, DENY or `UNDECIDED`; `status` is 0 if the agent
        got no response."""
        self._requests.add(self._kind, decision, _STATUS_CLASSES[status // 100])

    def count_failure(self, error: UpstreamFailed) -> None:
        """Count a failure of the data source under the label of its cause."""
        self._failures.add(self._kind, CAUSES.get(type(error), _UNJUDGED))
