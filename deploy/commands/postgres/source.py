"""Reads what the commands need to know of a sidecar's `postgres` source: from the sidecar's
settings file, or from options.

Reads only these keys of the file, and ignores faults in all others: `sluice sidecar --check` finds
those. Variables that override the file (`SLUICE_SIDECAR_…`) are not read.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import yaml

from deploy.commands.policy.sources import Unusable
from policies.definitions.model import RANK, SENSITIVITIES, Sensitivity
from policies.definitions.wildcard import Matcher, matcher
from policies.ground.errors import worded

MAX_BYTES = 1024 * 1024
KIND = "postgres"
STATEMENT_SECONDS = 30
"""The timeout of statements, where the settings state none; the sidecar's default too."""
LITERAL = "~:@!$&'()*,="
"""The characters that the sidecar leaves as they are in a segment of a source id, besides letters,
digits and `-._`."""


class NamedSource(NamedTuple):
    """A relation as policies see it: its source id, and the level at which it is decided."""

    source_id: str
    level: Sensitivity


class RelationRule(NamedTuple):
    """An entry of `relations`: what it matches, and the id and level that it gives, if any."""

    schema: Matcher
    name: Matcher
    source_id: str | None
    level: Sensitivity | None

    def fits(self, schema: str, name: str) -> bool:
        return self.schema(schema) and self.name(name)


class PostgresSource(NamedTuple):
    """A source of the kind `postgres`. `names` gives plain names to source ids, `views` are the
    patterns of `through_views`."""

    alias: str
    database: str
    login: str
    level: Sensitivity
    rules: tuple[RelationRule, ...] = ()
    views: tuple[RelationRule, ...] = ()
    names: Mapping[str, NamedSource] = {}
    statement_seconds: int = STATEMENT_SECONDS

    def named(self, schema: str, name: str) -> NamedSource:
        """Return the source that the relation `schema.name` is, as the sidecar names it."""
        parts = (quote(each, safe=LITERAL) for each in (self.database, schema, name))
        own = f"{KIND}://{self.alias}/" + "/".join(parts)
        found = self.names.get(own, NamedSource(own, self.level))
        for rule in self.rules:
            if rule.fits(schema, name):
                return NamedSource(rule.source_id or found.source_id, rule.level or found.level)
        return found

    def through(self, schema: str, view: str) -> bool:
        """Return whether what the view reads counts as the view itself (`through_views`)."""
        return any(each.fits(schema, view) for each in self.views)


def add_source(command: argparse.ArgumentParser) -> None:
    """Add the options that name the source."""
    group = command.add_argument_group("the source")
    group.add_argument("--alias", required=True, help="its alias in the sidecar's settings")
    group.add_argument(
        "--settings",
        metavar="FILE",
        help="the sidecar's settings file, or a file of its sources: gives the options below",
    )
    group.add_argument("--database", metavar="NAME", help="the database's name")
    group.add_argument("--login", metavar="NAME", help="the role with which the sidecar logs in")
    group.add_argument(
        "--sensitivity",
        choices=SENSITIVITIES,
        help="the level of every relation; without --settings and this, `critical`",
    )


def read_source(options: argparse.Namespace) -> PostgresSource:
    """Return the source that the options name. Raises `Unusable`."""
    given: Mapping[str, Any] = {}
    if options.settings is not None:
        given = _of_alias(Path(options.settings), options.alias)
    database = options.database or _database(given)
    login = options.login or _mapping(given.get("login")).get("user")
    for option, value in (("--database", database), ("--login", login)):
        if not isinstance(value, str) or not value:
            raise Unusable(f"{option} is missing, and --settings names none")
    level = _level(options.sensitivity or given.get("sensitivity")) or SENSITIVITIES[-1]
    entries = [_mapping(each) for each in given.get("relations") or ()]
    seconds = _mapping(given.get("result")).get("statement_seconds", STATEMENT_SECONDS)
    if type(seconds) is not int or seconds < 1:
        raise Unusable(f"`statement_seconds: {seconds!s:.40}` is not a number of seconds")
    return PostgresSource(
        options.alias,
        str(database),
        str(login),
        level,
        tuple(_rule(each["match"], each) for each in entries if "match" in each),
        tuple(_rule(each, {}) for entry in entries for each in entry.get("through_views") or ()),
        {name: _named(name, value, level) for name, value in _mapping(given.get("names")).items()},
        seconds,
    )


def _of_alias(path: Path, alias: str) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise Unusable(f"`{path}` is larger than {MAX_BYTES:,} bytes")
        found = yaml.safe_load(content)
    except OSError as error:
        raise Unusable(f"`{path}` can't be read: {worded(error)}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise Unusable(f"`{path}` is not YAML: {str(error).splitlines()[0]}") from error
    sources = found if isinstance(found, list) else _mapping(found).get("sources")
    for each in map(_mapping, sources if isinstance(sources, list) else ()):
        if each.get("alias") == alias:
            if each.get("kind") != KIND:
                raise Unusable(f"`{path}`: the source `{alias}` is not of the kind `{KIND}`")
            return each
    raise Unusable(f"`{path}` has no source with the alias `{alias}`")


def _database(given: Mapping[str, Any]) -> str:
    try:
        return unquote(urlsplit(str(given.get("upstream") or "")).path.removeprefix("/"))
    except ValueError:
        return ""


def _rule(pattern: object, entry: Mapping[str, Any]) -> RelationRule:
    schema, dot, name = str(pattern).partition(".")
    if not schema or not dot or not name or "." in name:
        raise Unusable(f"`{pattern!s:.80}` is not a schema and a name such as `hr.*`")
    source_id = entry.get("source_id")
    return RelationRule(
        matcher((schema,)),
        matcher((name,)),
        None if source_id is None else str(source_id),
        _level(entry.get("sensitivity")),
    )


def _named(name: str, value: object, level: Sensitivity) -> NamedSource:
    entry = _mapping(value)
    return NamedSource(
        str(entry.get("source_id") or name), _level(entry.get("sensitivity")) or level
    )


def _level(value: object) -> Sensitivity | None:
    if value is None:
        return None
    for level in SENSITIVITIES:
        if level == value:
            return level
    raise Unusable(f"`sensitivity: {value!s:.40}` is not one of {', '.join(RANK)}")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
