"""The responses about the levels that a tenant states of its sources."""

from dataclasses import dataclass
from typing import Any, ClassVar

from policies.definitions.model import Sensitivity


@dataclass(frozen=True, slots=True)
class SourceShown:
    """The level of all sources whose id matches a pattern."""

    source_pattern: str
    sensitivity_level: Sensitivity

    example: ClassVar[dict[str, Any]] = {
        "source_pattern": "salaries*",
        "sensitivity_level": "critical",
    }
