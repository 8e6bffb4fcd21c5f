"""Why a token gets nothing."""

from typing import TYPE_CHECKING

from control_api.metrics.labels import Enrolling
from policies.ground.errors import Forbidden

if TYPE_CHECKING:
    from control_api.enrolment.token import Pod


class TokenRefused(Forbidden):
    """the token is refused

    `issuer` is set once the token's is known, and `pod` once its signature holds: before that,
    everything that the token says is a stranger's text.
    """

    def __init__(
        self, reason: Enrolling, why: str, issuer: str | None = None, pod: "Pod | None" = None
    ) -> None:
        # A sidecar reads the reason, and an operator the sentence.
        super().__init__(f"the token is refused: {why}", details=str(reason))
        self.reason = reason
        self.why = why
        self.issuer = issuer
        self.pod = pod
