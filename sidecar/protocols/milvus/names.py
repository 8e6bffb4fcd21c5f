"""Reads the names of databases, collections and partitions in the requests of Milvus' two
interfaces, REST v2 and gRPC. Both say the same in other spellings, so each function here is used
for both: the rules don't depend on the wire.

Milvus removes white space around names, and may be set up to take a partition's name for a regular
expression. So a name that is not plain is refused, whatever Milvus would make of it.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from policies.ground.errors import Malformed
from sidecar.protocols.protocol import FieldIterable, Unresolved
from sidecar.protocols.shared.strict_queries import read_members
from sidecar.protocols.strict_body import MAX_SOURCES, Budget, OverBudget

DEFAULT_DATABASE = "default"

# The name of a collection may contain `$`. In a regular expression it would match the end.
_NAME = re.compile(r"[A-Za-z0-9_$-]{1,255}\Z")
_PARTITION = re.compile(r"[A-Za-z0-9_-]{1,255}\Z")


class Spelling(NamedTuple):
    """The members by which one of the interfaces names things."""

    header: bytes
    """The header field, in lower case, with the database of a request that names none itself."""
    database: str
    collection: str
    collections: str
    partition: str
    partitions: str
    alias: str
    requests: str
    """The list of the searches of a hybrid search."""
    renamed: str
    """The collection that gets another name, or another database."""
    new_collection: str
    new_database: str
    numbers: tuple[str, ...]
    """Numbers that stand for the name of a collection, or of a part of it."""
    moved_by_header: bool = False
    """True if a renamed collection goes to the database of the header, unless its new one is
    named."""
    beyond: tuple[str, ...] = ("namespace", "sub_reqs", "ids", "search_by_primary_keys")
    """Members that may lead beyond the partitions that a request names: to a part of the collection
    by a property of its entities, also in a search within the search, or to a stored entity."""


REST = Spelling(
    b"db-name", "dbName", "collectionName", "collectionNames", "partitionName", "partitionNames",
    "aliasName", "search", "collectionName", "newCollectionName", "newDbName", ("collectionID",),
)  # fmt: skip
GRPC = Spelling(
    b"dbname", "db_name", "collection_name", "collection_names", "partition_name",
    "partition_names", "alias", "requests", "oldName", "newName", "newDBName",
    ("collectionID", "partition_id", "segment_ids"), moved_by_header=True,
)  # fmt: skip


class Target(NamedTuple):
    """A collection as a request names it, which may be by an alias, and the partitions, none if the
    request names none and so concerns all of them. Without a collection, it is the database."""

    database: str
    collection: str = ""
    partitions: tuple[str, ...] = ()


class Given(NamedTuple):
    """What a request says: its members, how they are spelled, and the database that its header
    names, empty if none."""

    values: dict[str, Any]
    spelling: Spelling
    database: str
    budget: Budget

    def named_database(self) -> str:
        """Return the database of the request. Raises `Malformed` and `Unresolved`."""
        named, stated = _text(self, self.spelling.database), self.database
        if named and stated and named != stated:
            header = self.spelling.header.decode()
            raise Malformed(f"the header `{header}` names another database than the request")
        return _plain(named or stated or DEFAULT_DATABASE)


Names = Callable[[Given], Iterable[Target]]
"""Finds what a request names, by its members alone. Raises `Malformed`, and `Unresolved` for a
request that names nothing that a decision could be about."""


def header_database(fields: FieldIterable, spelling: Spelling) -> str:
    """Return the database that a header names; empty if none does. Raises `Malformed` if two
    do."""
    found = {value for name, value in fields if name.lower() == spelling.header}
    if len(found) > 1:
        raise Malformed(f"the header `{spelling.header.decode()}` names two databases")
    return found.pop().decode("latin-1") if found else ""


def of_collection(given: Given) -> list[Target]:
    """Return the collection, whatever partitions the request names."""
    return [_whole(given)]


def of_partition(given: Given) -> list[Target]:
    """Return the partition that a request names by one name, or else the collection."""
    return [_narrowed(given, _texts(given, given.spelling.partition))]


def of_partitions(given: Given) -> list[Target]:
    """Return the partitions that a request lists, or else the collection."""
    return [_narrowed(given, _list(given, given.spelling.partitions))]


def of_search(given: Given) -> list[Target]:
    """Return what a search, or each search of a hybrid search, concerns."""
    [outer] = of_partitions(given)
    # The two servers of Milvus differ on which partitions count, those of the hybrid search or
    # those of a search in it. So all of them are judged.
    found = [outer]
    [requests] = _members(given, given.spelling.requests)
    if not isinstance(requests, list | None):
        raise Malformed(f"`{given.spelling.requests}` must be a list of objects")
    for each in requests or ():
        if not isinstance(each, dict):
            raise Malformed(f"`{given.spelling.requests}` must be a list of objects")
        given.budget.charge_parts(1)
        found.append(_inner(given._replace(values=each), outer))
    return found


def of_all(given: Given) -> list[Target]:
    """Return the collections that a request lists, or else none: then it concerns all of them."""
    names = _list(given, given.spelling.collections)
    return [Target(given.named_database(), _checked(name)) for name in names]


def of_listed(given: Given) -> list[Target]:
    """Return the collections that a request lists. Raises `Unresolved` for an empty list."""
    names = _list(given, given.spelling.collections)
    return [Target(given.named_database(), _checked(name)) for name in _some(names)]


def of_repeated(given: Given) -> list[Target]:
    """Return the collections of a request whose member for one collection is a list."""
    _refuse_numbers(given)
    names = _list(given, given.spelling.collection)
    return [Target(given.named_database(), _checked(name)) for name in _some(names)]


def of_alias(given: Given) -> list[Target]:
    return [Target(given.named_database(), _checked(_text(given, given.spelling.alias)))]


def of_database(given: Given) -> list[Target]:
    return [Target(given.named_database())]


def of_renamed(given: Given) -> list[Target]:
    """Return the collection that gets another name, under both names."""
    spelling, database = given.spelling, given.named_database()
    new = _text(given, spelling.new_database)
    old_name, new_name = _text(given, spelling.renamed), _text(given, spelling.new_collection)
    # Not every version of Milvus takes the database of the old name for the new one too.
    moved = [_plain(given.database or DEFAULT_DATABASE)] if spelling.moved_by_header else []
    goals = [_plain(new)] if new else [database, *moved]
    return [
        Target(database, _checked(old_name)),
        *(Target(each, _checked(new_name)) for each in goals),
    ]


def _whole(given: Given) -> Target:
    _refuse_numbers(given)
    return Target(given.named_database(), _checked(_text(given, given.spelling.collection)))


def _narrowed(given: Given, partitions: list[str]) -> Target:
    if _goes_beyond(given):
        partitions = []
    return _whole(given)._replace(partitions=tuple(map(_partition, partitions)))


def _inner(given: Given, outer: Target) -> Target:
    """Return what one search of a hybrid search concerns: what it doesn't name is as in `outer`."""
    database, name = _text(given, given.spelling.database), _text(given, given.spelling.collection)
    partitions = tuple(map(_partition, _list(given, given.spelling.partitions)))
    if _goes_beyond(given):
        partitions = ()
    elif not partitions:
        partitions = outer.partitions
    return Target(
        _plain(database) if database else outer.database,
        _plain(name) if name else outer.collection,
        partitions,
    )


def _goes_beyond(given: Given) -> bool:
    # A namespace may be a partition of its own, so nothing but the whole collection is sure.
    return any(each is not None for each in _members(given, *given.spelling.beyond))


def _refuse_numbers(given: Given) -> None:
    for name in given.spelling.numbers:
        if _members(given, name)[0]:
            raise Unresolved(f"`{name}` is only a number: name the collection instead")


def _some(names: list[str]) -> list[str]:
    if not names:
        raise Unresolved("the request names no collection")
    return names


def _checked(name: str) -> str:
    if not name:
        raise Unresolved("the request names no collection")
    return _plain(name)


def _plain(name: str) -> str:
    if not _NAME.match(name):
        raise Unresolved("a name must have the form [A-Za-z0-9_$-]{1,255}")
    return name


def _partition(name: str) -> str:
    if not _PARTITION.match(name):
        raise Unresolved("a partition's name must have the form [A-Za-z0-9_-]{1,255}")
    return name


def _members(given: Given, *names: str) -> list[Any]:
    # Milvus' JSON reader ignores case. Members that only it would accept are refused.
    return read_members(given.values, *names)


def _text(given: Given, member: str) -> str:
    [value] = _members(given, member)
    if not isinstance(value, str | None):
        raise Malformed(f"`{member}` must be a string")
    return value or ""


def _texts(given: Given, member: str) -> list[str]:
    value = _text(given, member)
    return [value] if value else []


def _list(given: Given, member: str) -> list[str]:
    [value] = _members(given, member)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise Malformed(f"`{member}` must be a list of strings")
    # Each search of a hybrid search may have the partitions of the whole, so that a long list would
    # be walked for each of them.
    if len(value) > MAX_SOURCES:
        raise OverBudget(f"`{member}` has more than {MAX_SOURCES} names")
    return value
