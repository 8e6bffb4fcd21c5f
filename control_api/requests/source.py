"""The level of a source in a request. Knows nothing of the store."""

from typing import Any, ClassVar

from control_api.requests.base import Identifier, RequestModel
from control_api.responses.sources import SourceShown
from policies.definitions.model import Sensitivity


class SourceRequest(RequestModel):
    """Names one pattern."""

    source_pattern: Identifier


class SourceAsked(RequestModel):
    """The least level at which the sources of a pattern are decided."""

    example: ClassVar[dict[str, Any]] = {"sensitivity_level": "critical"}
    shown = SourceShown

    source_pattern: Identifier
    sensitivity_level: Sensitivity
