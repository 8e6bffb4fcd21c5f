"""The source ids that policies use: plain names from the configuration, or `<kind>://<alias>/…`
(`protocols/RULES.md`, Source ids). Pure."""

from policies.definitions.model import Sensitivity
from sidecar.http.request_target import encode_segment
from sidecar.protocols.messages import SourceRef
from sidecar.settings.model import Source


class SourceNames:
    """The names of one configured source."""

    def __init__(self, source: Source) -> None:
        # INVARIANT: the alias comes from the configuration, never from a header: `Host` and
        # `X-Forwarded-…` are the agent's to choose (`protocols/RULES.md`, Source ids).
        self._names = source.names
        self._level = source.sensitivity
        self._root = f"{source.kind}://{source.alias}"
        self.whole = SourceRef(self._root, source.sensitivity)
        """The data source as a whole, where nothing more specific is known."""

    def of(self, *segments: str) -> SourceRef:
        """The source with these name segments."""
        # Encoded, so that a `/` inside a segment can't be mistaken for a separator.
        return self.named(self._root + "/" + "/".join(map(encode_segment, segments)))

    def below(self, *segments: str) -> tuple[SourceRef, tuple[SourceRef, ...]]:
        """What the ids of all sources below these name segments begin with, and those of them that
        the configuration gives a plain name."""
        start = self._root + "/" + "".join(f"{encode_segment(each)}/" for each in segments)
        named = (known for name, known in self._names.items() if name.startswith(start))
        refs = tuple(SourceRef(known.source_id, known.sensitivity) for known in named)
        return SourceRef(start, self._level), refs

    def of_path(self, path: str, level: Sensitivity | None = None) -> SourceRef:
        """The source of a canonical path."""
        return self.named(self._root + path, level)

    def named(self, source_id: str, level: Sensitivity | None = None) -> SourceRef:
        """The source `source_id`, or the plain name that the configuration gives it."""
        named = self._names.get(source_id)
        if named is not None:
            return SourceRef(named.source_id, named.sensitivity)
        return SourceRef(source_id, level or self._level)
