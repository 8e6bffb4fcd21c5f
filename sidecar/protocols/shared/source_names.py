"""What names policies use for a data source's things: the plain names of the configuration, or
`<kind>://<alias>/…` (data-sources.md R1). Pure."""

from sidecar.http.request_target import encode_segment
from sidecar.protocols.messages import SourceRef
from sidecar.settings.model import Source


class SourceNames:
    """The names of one configured source. The alias is the configuration's, never a header's."""

    def __init__(self, source: Source) -> None:
        self._names = source.names
        self._level = source.sensitivity
        self._root = f"{source.kind}://{source.alias}"
        self.whole = SourceRef(self._root, source.sensitivity)
        """The data source as such, for what can't be told more closely."""

    def of(self, *segments: str) -> SourceRef:
        """Of a thing whose name has these parts. Each is written so that a `/` inside a part can't
        be taken for one between two."""
        return self.named(self._root + "/" + "/".join(map(encode_segment, segments)))

    def of_path(self, path: str, level: str | None = None) -> SourceRef:
        """Of a canonical path."""
        return self.named(self._root + path, level)

    def named(self, source_id: str, level: str | None = None) -> SourceRef:
        """`source_id`, or the plain name that the configuration has for it."""
        named = self._names.get(source_id)
        if named is not None:
            return SourceRef(named.source_id, named.sensitivity)
        return SourceRef(source_id, level or self._level)
