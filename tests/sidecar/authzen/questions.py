"""AuthZEN questions for tests."""

from typing import Any

from tests.support.fake_control_api import AGENT, ROLE

EVALUATION = "/access/v1/evaluation"
EVALUATIONS = "/access/v1/evaluations"


def question(**changed: Any) -> dict[str, Any]:
    """The body of an evaluation, allowed unless changed; None leaves a member out. It asks what
    `running_sidecar.ask` does."""
    body = {
        "subject": {"type": "agent", "id": AGENT, "properties": {"role": ROLE}},
        "action": {"name": "read"},
        "resource": {
            "type": "source",
            "id": "contracts",
            "properties": {"sensitivity_level": "high"},
        },
        "context": {"user_id": "ann@example.com"},
    }
    return {name: value for name, value in {**body, **changed}.items() if value is not None}
