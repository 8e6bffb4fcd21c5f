"""Which resources are a given source: the mapping of `authzen.resources`, backwards. Pure.

An id is only proposed here. Whether the first rule that matches it leads to the source is for
`ResourceRules.target` to say.
"""

from collections.abc import Iterator

from policies.definitions.wildcard import is_pattern
from sidecar.authzen.resource_rules import PLAIN_TYPE
from sidecar.settings.authzen import ResourceRule

_SEPARATOR = "://"


def proposed_ids(source_id: str, kind: str, rules: tuple[ResourceRule, ...]) -> Iterator[str]:
    """Ids of resources of the type `kind` that may be the source, some more than once.

    A rule that maps any number of ids to one source (a pattern in `id`, and no `{id}` in
    `source_id`) proposes none: its resources can't be listed.
    """
    for rule in rules:
        if rule.type == kind and rule.source_id is not None:
            parts = rule.source_id.replace("{type}", kind).split("{id}")
            if len(parts) > 1:
                yield from _between(parts, source_id)
            elif parts[0] == source_id and not is_pattern(rule.id):
                yield rule.id
    prefix, separator, rest = source_id.partition(_SEPARATOR)
    if not separator and kind == PLAIN_TYPE:
        yield source_id
    elif separator and prefix == kind:
        yield rest


def _between(parts: list[str], source_id: str) -> Iterator[str]:
    """The text that stands between all of the parts, if there is one."""
    length, uneven = divmod(len(source_id) - sum(map(len, parts)), len(parts) - 1)
    begin = len(parts[0])
    found = source_id[begin : begin + length]
    if length > 0 and not uneven and found.join(parts) == source_id:
        yield found
