"""Finds the sources of Milvus requests: the collections and partitions that they name, each judged
by what its name stands for. A name may be an alias, so the sidecar asks Milvus for the collection
behind it, over the interface that the request came by.

The same functions serve both interfaces; only the spelling of names (`names.py`) and the form of
the look-up differ.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.protocols.milvus.entity_filter import is_nameable
from sidecar.protocols.milvus.grpc_schema import REQUESTS, RESPONSES
from sidecar.protocols.milvus.names import (
    GRPC,
    REST,
    Given,
    Names,
    Spelling,
    Target,
    header_database,
    of_collection,
)
from sidecar.protocols.protocol import (
    FetchedResponse,
    FindSources,
    FindSourcesNow,
    GrpcMessage,
    ProtocolRoute,
    RoutedRequest,
    SourceRef,
    Sources,
    Unresolved,
)
from sidecar.protocols.shared.caches import Continuations, DigestCache, credential_key
from sidecar.protocols.shared.responses import response_object
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.strict_body import MAX_SOURCES, OverBudget
from sidecar.settings.model import Source

SERVICE = "/milvus.proto.milvus.MilvusService"
DESCRIBE_ALIAS = f"{SERVICE}/DescribeAlias"

_NO_ALIAS = frozenset((100, 800, 1600))
"""What Milvus answers for a name that is no alias: no such collection, database or alias. Milvus
Lite answers the first."""


class AliasTargets:
    """Finds the collections that names stand for in one Milvus, and caches them per credentials."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._known: DigestCache[str] = DigestCache(monotonic)
        self.clear = self._known.clear

    def cached(self, request: RoutedRequest, target: Target) -> str | None:
        return self._known.get(self._key(request, target))

    async def find(self, request: RoutedRequest, target: Target) -> str:
        """Return the collection that a name stands for, which is the name itself if it is no alias.
        Raises `Unresolved` if the look-up fails."""
        if (known := self.cached(request, target)) is not None:
            return known
        # Before the request: a change during the look-up must prevent caching.
        started = self._known.start_lookup()
        try:
            found = await _describe_alias(request, target)
        except UpstreamFailed as error:
            raise Unresolved(f"can't look up `{target.collection}`: {error}") from error
        # A name that doesn't exist is judged as written: a write may create it.
        own = found or target.collection
        self._known.put(self._key(request, target), own, len(own), started)
        return own

    def _key(self, request: RoutedRequest, target: Target) -> bytes:
        # A name can't hold a slash (`names.py`).
        return credential_key(request, f"{target.database}/{target.collection}")


async def _describe_alias(request: RoutedRequest, target: Target) -> str | None:
    """Return the collection behind an alias; None if there is no such alias. Asks by the interface
    that the request came by: the other one may not be there, or behind another address."""
    if isinstance(request.body, GrpcMessage):
        asked = {"db_name": target.database, "alias": target.collection}
        body = REQUESTS["DescribeAliasRequest"].encode(asked)
        found = grpc_values("DescribeAliasResponse", await request.fetch(DESCRIBE_ALIAS, body))
        status = found.get("status", {})
        # Milvus before 2.3 has no `code`, but says of a success that there was no error.
        return _alias_target(status.get("code", status.get("error_code", 0)), found, "collection")
    body = orjson.dumps({"dbName": target.database, "aliasName": target.collection})
    answer = response_object(await request.fetch("/v2/vectordb/aliases/describe", body))
    data = answer.get("data")
    code = answer.get("code")
    # Some versions of Milvus answer with HTTP's code for success, others with their own.
    code = 0 if code == 200 else code
    return _alias_target(code, data if isinstance(data, dict) else {}, "collectionName")


def _alias_target(code: object, answer: dict[str, Any], member: str) -> str | None:
    if code in _NO_ALIAS:
        return None
    # Not False, which equals 0.
    if type(code) is not int or code:
        raise UpstreamFailed(f"the data source answered with code `{str(code)[:32]}`")
    name = answer.get(member)
    if not isinstance(name, str) or not name:
        raise UpstreamFailed("the data source's alias names no collection")
    return name


def grpc_values(message: str, response: FetchedResponse) -> dict[str, Any]:
    """Return the values of a response of gRPC. Raises `UpstreamFailed` if it can't be read."""
    try:
        return RESPONSES[message].decode(response.body).values
    except Malformed as error:
        raise UpstreamFailed(f"the data source's response can't be read: {error}") from error


class MilvusSources:
    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self.source_names = SourceNames(source)
        self._aliases = AliasTargets(monotonic)
        self._pages = Continuations(monotonic)
        field = source.sensitivity_field
        self.filters_levels = field is not None and is_nameable(field)
        """True if entities have levels in a field that an expression can name."""

    async def sources(self, request: RoutedRequest, names: Names) -> Sources:
        """Return the sources that a request names. Raises `Malformed`, `OverBudget` and
        `Unresolved`."""
        # Read the names before any look-up: a malformed request then costs Milvus no request.
        targets = self._targets(request, names)
        own = {
            each: await self._aliases.find(request, each)
            for each in dict.fromkeys(each._replace(partitions=()) for each in targets)
            if each.collection
        }
        return self._refs(targets, own)

    def sources_now(self, request: RoutedRequest, names: Names) -> Sources | None:
        """Return the sources as `sources` does, but only if all names are cached; otherwise
        None."""
        targets = self._targets(request, names)
        own: dict[Target, str] = {}
        for each in targets:
            name = each._replace(partitions=())
            known = self._aliases.cached(request, name) if name.collection else ""
            if known is None:
                return None
            own[name] = known
        return self._refs(targets, own)

    def hint(self, request: RoutedRequest, names: Names) -> SourceRef | None:
        """Return the source that a denied write names first, without a look-up; None if it names
        none."""
        try:
            [first, *_] = self._targets(request, names)
        except Unresolved:
            return None
        name = first._replace(partitions=())
        own = self._aliases.cached(request, name) or first.collection
        return self._refs([first], {name: own})[0]

    def parts_of(self, request: RoutedRequest) -> tuple[str, str]:
        """Return the database and the collection of a request that names one collection. Call it
        after the decision, for which the name has just been looked up, so that it is cached."""
        [target] = of_collection(given(request))
        return target.database, self._aliases.cached(request, target) or target.collection

    def page_sources(self, request: RoutedRequest, tokens: Iterable[str]) -> Sources:
        """Return the sources for which tokens of pages were issued. Raises `Unresolved`."""
        return tuple(
            source
            for token in tokens
            for source in self._pages.sources_of(token, request.attribution)
        )

    def remember_page(self, request: RoutedRequest, token: str, sources: Sources) -> None:
        self._pages.remember(token, request.attribution, sources)

    def forget_names(self) -> None:
        self._aliases.clear()

    def _targets(self, request: RoutedRequest, names: Names) -> list[Target]:
        targets = list(dict.fromkeys(names(given(request))))
        # Limited before any look-up. Each partition is a source of its own.
        if sum(len(each.partitions) or 1 for each in targets) > MAX_SOURCES:
            raise OverBudget(f"the request names more than {MAX_SOURCES} collections or partitions")
        return targets

    def _refs(self, targets: Iterable[Target], own: dict[Target, str]) -> Sources:
        found: dict[SourceRef, None] = {}
        for each in targets:
            name = own.get(each._replace(partitions=()), "")
            parts = (each.database, name) if name else (each.database,)
            if not each.partitions:
                found[self.source_names.of(*parts)] = None
            for partition in each.partitions:
                found[self.source_names.of(*parts, partition)] = None
        return tuple(found)


def given(request: RoutedRequest) -> Given:
    """Return what a request says, in the form for `names.py`."""
    spelling, values = spelled(request)
    database = header_database(request.fields, spelling)
    return Given(values, spelling, database, request.budget)


def spelled(request: RoutedRequest) -> tuple[Spelling, dict[str, Any]]:
    """Return the members of a request, and how its interface spells them."""
    body = request.body
    return (GRPC, body.values) if isinstance(body, GrpcMessage) else (REST, body)


def finder(names: Names) -> FindSources:
    async def find(milvus: MilvusSources, request: RoutedRequest) -> Sources:
        return await milvus.sources(request, names)

    return find


def finder_now(names: Names) -> FindSourcesNow:
    def find(milvus: MilvusSources, request: RoutedRequest) -> Sources | None:
        return milvus.sources_now(request, names)

    return find


def hinted(write: ProtocolRoute, names: Names) -> ProtocolRoute:
    """Return the row of a write whose record, where it is denied, has the first of `names`, which
    are in the body."""

    def hint(milvus: MilvusSources, request: RoutedRequest) -> SourceRef | None:
        return milvus.hint(request, names)

    return replace(write, hint_source=hint, hint_in_body=True)
