"""What level a document has by its own mark (`sensitivity_field`), and whether it may be seen.
Pure. Knows no protocol."""

from typing import Any, NamedTuple

import orjson

from policies.definitions.model import SENSITIVITIES
from policies.ground.errors import UpstreamFailed
from sidecar.protocols.messages import Visibility

UNMARKED = "critical"
"""The level of a document without a mark, or with one that is none of the four."""


class DocumentLevels(NamedTuple):
    """Where the mark stands in a document's metadata, and the levels that may be seen."""

    path: tuple[str, ...]
    levels: tuple[str, ...]

    @property
    def filterable(self) -> bool:
        """Whether a condition "the mark is one of the levels" leaves out nothing that may be seen:
        not so where documents without a mark may be."""
        return UNMARKED not in self.levels

    def may_see(self, metadata: Any) -> bool:
        """Whether the document with these metadata may be seen."""
        for name in self.path:
            if not isinstance(metadata, dict):
                return self.may_see_unmarked
            metadata = metadata.get(name)
        # Only the very word: of a list of levels nobody knows which one is meant.
        if isinstance(metadata, str) and metadata in SENSITIVITIES:
            return metadata in self.levels
        return self.may_see_unmarked

    @property
    def may_see_unmarked(self) -> bool:
        return UNMARKED in self.levels


def levels_of(sight: Visibility) -> DocumentLevels | None:
    """None where every document may be seen."""
    return (
        None
        if sight.levels is None
        else DocumentLevels(tuple(sight.field.split(".")), sight.levels)
    )


def to_json(answer: Any) -> bytes:
    """An answer as it goes on. `UpstreamFailed` where it is nested deeper than can be written."""
    try:
        return orjson.dumps(answer)
    except orjson.JSONEncodeError as error:
        raise UpstreamFailed("the data source's answer is nested too deeply") from error


def expect_object(value: Any, what: str) -> dict[str, Any]:
    """`value`, a JSON object of the data source's answer; raises `UpstreamFailed` for any other."""
    if not isinstance(value, dict):
        raise UpstreamFailed(f"the data source's {what} is not of a form known here")
    return value


def expect_list(value: Any, what: str) -> list[Any]:
    """As `an_object`, a JSON array."""
    if not isinstance(value, list):
        raise UpstreamFailed(f"the data source's {what} is not of a form known here")
    return value
