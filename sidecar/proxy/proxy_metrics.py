"""What passes through the proxy, in numbers: requests by what became of them, failures of data
sources by their cause, bytes. Labels are of closed sets: the source's kind, never its name.

Knows metrics. Knows nothing of requests but what they came to.
"""

from policies.ground.errors import UpstreamFailed
from sidecar.metrics.metrics import Metrics
from sidecar.protocols.messages import ResponseTooLarge
from sidecar.proxy.local_response import LocalResponse, ResponseSent

UNDECIDED = "none"
"""In place of a decision, of a request that needs none, or never came so far."""

_CLASSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx", "other", "other", "other", "other")
"""By the first of a status' three digits, all of which data sources may make use of."""


class UpstreamUnreachable(UpstreamFailed):
    """the data source can't be reached"""


class Unverified(UpstreamFailed):
    """the data source can't be verified"""


class Unanswered(UpstreamFailed):
    """the data source gave no answer that can be read"""


class BrokenOff(UpstreamFailed):
    """the data source broke off its answer"""


CAUSES: dict[type[UpstreamFailed], str] = {
    UpstreamUnreachable: "unreachable",
    Unverified: "unverified",
    Unanswered: "unanswered",
    BrokenOff: "broken_off",
    ResponseTooLarge: "too_large",
}
"""Any other is `unjudged`: an answer that tells what nobody here can judge."""


class ProxyMetrics:
    """Of one source."""

    def __init__(self, metrics: Metrics, kind: str) -> None:
        self._requests = metrics.requests
        self._failures = metrics.upstream_failures
        self._kind = kind

    def answered(self, decision: str, status: int) -> None:
        """`decision` is ALLOW, DENY or `UNDECIDED`; `status` 0 where the agent heard none."""
        self._requests.add(self._kind, decision, _CLASSES[status // 100])

    def came_to(self, decision: str, answer: LocalResponse | ResponseSent | None) -> None:
        """As `answered`, None where the request ended without an answer."""
        self.answered(decision, 0 if answer is None else answer.status)

    def failed(self, error: UpstreamFailed) -> None:
        """The data source did not do what it should."""
        self._failures.add(self._kind, CAUSES.get(type(error), "unjudged"))


class Flow:
    """Bytes on the agents' connections of one port, framing included."""

    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
