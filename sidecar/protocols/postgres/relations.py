"""Names the relations of a server as sources: by the first rule of the settings that fits, or as
`postgres://<alias>/<database>/<schema>/<relation>`. Pure."""

from urllib.parse import unquote, urlsplit

from policies.definitions.wildcard import Matcher, matcher
from sidecar.protocols.protocol import SourceRef
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.settings.model import Source
from sidecar.settings.postgres import RelationRule


def database_of(source: Source) -> str:
    """Return the name of the database that the source's address names."""
    return unquote(urlsplit(source.upstream).path.removeprefix("/"))


class RelationNames:
    """Finds the source that a relation of `source` is."""

    def __init__(self, source: Source) -> None:
        self.database = database_of(source)
        self._names = SourceNames(source)
        self.whole = self._names.whole
        self._level = source.sensitivity
        self._rules = [_Rule(each) for each in source.relations]

    def of(self, schema: str, name: str) -> SourceRef:
        """Return the source that the relation `schema.name` is."""
        own = self._names.of(self.database, schema, name)
        for rule in self._rules:
            if rule.fits(schema, name):
                level = rule.sensitivity or own.sensitivity
                return SourceRef(rule.source_id or own.source_id, level)
        return own


class _Rule:
    def __init__(self, rule: RelationRule) -> None:
        schema, _, name = rule.match.partition(".")
        self._schema: Matcher = matcher((schema,))
        self._name: Matcher = matcher((name,))
        self.source_id = rule.source_id
        self.sensitivity = rule.sensitivity

    def fits(self, schema: str, name: str) -> bool:
        return self._schema(schema) and self._name(name)
