"""A document's own sensitivity level (`sensitivity_field`), and whether the agent may see it. Pure.
Knows no protocol."""

from typing import Any, NamedTuple

from policies.definitions.model import SENSITIVITIES, Sensitivity
from sidecar.protocols.messages import Visibility

DEFAULT_LEVEL: Sensitivity = "critical"
"""The level of a document that has none, or an unknown one: the highest, to be on the safe side."""


class DocumentLevels(NamedTuple):
    """The path to the level in a document's metadata, and the levels that the agent may see."""

    path: tuple[str, ...]
    levels: tuple[Sensitivity, ...]

    @property
    def filterable(self) -> bool:
        """Whether the condition "level is one of `levels`" matches every visible document. It
        doesn't if the agent may see documents without a level."""
        return not self.may_see_default

    def may_see(self, metadata: Any) -> bool:
        """Whether the agent may see the document with this metadata."""
        for name in self.path:
            if not isinstance(metadata, dict):
                return self.may_see_default
            metadata = metadata.get(name)
        # Only a plain string counts: a list of levels doesn't say which of them applies.
        if isinstance(metadata, str) and metadata in SENSITIVITIES:
            return metadata in self.levels
        return self.may_see_default

    @property
    def may_see_default(self) -> bool:
        return DEFAULT_LEVEL in self.levels


def levels_of(visibility: Visibility, *, flat: bool = False) -> DocumentLevels | None:
    """The levels that the agent may see, and where to find a document's; None if it may see every
    document. In `flat` metadata a dot is part of a name."""
    if visibility.levels is None:
        return None
    path = (visibility.field,) if flat else tuple(visibility.field.split("."))
    return DocumentLevels(path, visibility.levels)
