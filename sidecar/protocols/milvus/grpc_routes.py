"""The methods of `milvus.proto.milvus.MilvusService`, which Milvus' clients call over gRPC, each
with the class and the names of its twin in REST (`routes.py`). A search that may go on by pages
(`search_iter_v2`) has a token: it stands for the sources that it was issued for."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

from policies.ground.errors import UpstreamFailed
from sidecar.http.grpc.protobuf import Message
from sidecar.protocols.milvus import names
from sidecar.protocols.milvus.columns import query_filter, search_filter
from sidecar.protocols.milvus.entity_filter import (
    are_closed,
    are_plain_fields,
    requesting_level,
    with_condition,
)
from sidecar.protocols.milvus.grpc_schema import REQUESTS, RESPONSES
from sidecar.protocols.milvus.names import Given, Names, Target
from sidecar.protocols.milvus.sources import (
    SERVICE,
    MilvusSources,
    finder,
    finder_now,
    given,
    grpc_values,
    hinted,
)
from sidecar.protocols.protocol import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    ForwardedPart,
    ForwardPlan,
    PlanForward,
    ProtocolRoute,
    RouteClass,
    RoutedRequest,
    SourceRef,
    Sources,
    Visibility,
)
from sidecar.protocols.shared.responses import DocumentLevels, levels_of

Values = dict[str, Any]

_RETRIEVE, _METADATA, _WRITE = RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.WRITE
_BULK, _ADMIN, _OPEN = RouteClass.BULK, RouteClass.ADMIN, RouteClass.OPEN
_change = MilvusSources.forget_names

# Members of a search that find entities by value, and don't combine or cut them.
_PLAIN = frozenset((
    "base", "db_name", "collection_name", "partition_names", "dsl", "placeholder_group", "dsl_type",
    "output_fields", "search_params", "guarantee_timestamp", "nq", "not_return_all_meta",
    "consistency_level", "use_default_consistency", "expr_template_values", "namespace", "requests",
    "rank_params", "expr", "query_params",
))  # fmt: skip
_EXPRESSION = 1
"""The `dsl_type` of an expression. The other one is a form of before."""


class SearchForm(NamedTuple):
    """Where one kind of a search has its expressions, and what its response is."""

    read: Callable[..., Callable[[FetchedResponse], ForwardedPart]]
    expression: str = "dsl"
    hybrid: bool = False
    """True if the expressions are in each of `requests`."""

    def parts(self, values: Values) -> list[Values]:
        found: list[Values] = values.get("requests", []) if self.hybrid else [values]
        return found

    def can_filter(self, values: Values) -> bool:
        """Return whether entities can be withheld from the response to this request."""
        parts = self.parts(values)
        plain = all(each.keys() <= _PLAIN for each in (values, *parts))
        typed = all(each.get("dsl_type") == _EXPRESSION for each in parts if each.get("dsl"))
        closed = are_closed(each.get(self.expression, "") for each in parts)
        return plain and typed and closed and are_plain_fields(values.get("output_fields", ()))

    def narrow(self, values: Values, levels: DocumentLevels) -> tuple[Values, bool]:
        """Return the request with a condition on levels, and with the level among its fields; and
        whether that was added."""
        parts = [self._narrowed(each, levels) for each in self.parts(values)]
        narrowed = {**values, "requests": parts} if self.hybrid else parts[0]
        fields = requesting_level(values.get("output_fields", []), levels)
        return {**narrowed, "output_fields": fields.requested}, fields.added

    def _narrowed(self, part: Values, levels: DocumentLevels) -> Values:
        narrowed = {**part, self.expression: with_condition(part.get(self.expression, ""), levels)}
        return narrowed if self.expression == "expr" else {**narrowed, "dsl_type": _EXPRESSION}


SEARCH = SearchForm(search_filter)
HYBRID = SearchForm(search_filter, hybrid=True)
QUERY = SearchForm(query_filter, "expr")


def _row(
    method: str, route_class: RouteClass, found: Names | None = None, **more: Any
) -> ProtocolRoute:
    row = ProtocolRoute("POST", f"{SERVICE}/{method}", route_class, rpc=True, **more)
    if found is None:
        return row
    message = REQUESTS[f"{method}Request"]
    row = replace(
        row, find_sources=finder(found), find_sources_now=finder_now(found), message=message,
        plan_forward=_stating(message, _plan_nothing), forwards_unchanged=True,
    )  # fmt: skip
    return hinted(row, found) if route_class is _WRITE else row


def _plan_nothing(*_given: object) -> ForwardPlan:
    return FORWARD_UNCHANGED


def _stating(message: Message, plan: PlanForward) -> PlanForward:
    """Return `plan`, whose request names its database itself if only the header did. Some methods
    of some versions of Milvus don't read the header, and would take the default database, which
    was not judged."""

    def plan_stating(
        milvus: MilvusSources, request: RoutedRequest, sources: Sources, visibility: Visibility
    ) -> ForwardPlan:
        planned = plan(milvus, request, sources, visibility)
        database, values = given(request).database, request.body.values
        if not database or "db_name" in values or "db_name" not in message.fields.fields:
            return planned
        if planned.body is not None:
            values = message.decode(planned.body).values
        return planned._replace(body=message.encode({**values, "db_name": database}))

    return plan_stating


def _rows(route_class: RouteClass, found: Names | None, methods: str) -> Iterator[ProtocolRoute]:
    return (_row(each, route_class, found) for each in methods.split())


def _search_row(method: str, found: Names, form: SearchForm) -> ProtocolRoute:
    """Return the row of a search, whose entities are filtered. One that can't be filtered gets
    another row, which is judged at `critical`."""

    async def find(milvus: MilvusSources, request: RoutedRequest) -> Sources:
        pages = milvus.page_sources(request, _pages(request))
        return tuple(dict.fromkeys((*await milvus.sources(request, found), *pages)))

    def find_now(milvus: MilvusSources, request: RoutedRequest) -> Sources | None:
        named = milvus.sources_now(request, found)
        pages = milvus.page_sources(request, _pages(request))
        return None if named is None else tuple(dict.fromkeys((*named, *pages)))

    def plan(
        milvus: MilvusSources, request: RoutedRequest, sources: Sources, visibility: Visibility
    ) -> ForwardPlan:
        levels = levels_of(visibility)
        if levels is None:
            return plan_pages(milvus, request, sources, visibility)
        values, added = form.narrow(request.body.values, levels)
        read = form.read(levels, added=added)
        return ForwardPlan(message.encode(values), _remembering(milvus, request, sources, read))

    def plan_pages(
        milvus: MilvusSources, request: RoutedRequest, sources: Sources, _visibility: Visibility
    ) -> ForwardPlan:
        if not _by_pages(request):
            return FORWARD_UNCHANGED
        return ForwardPlan(filter_response=_remembering(milvus, request, sources, _unchanged))

    message = REQUESTS[f"{method}Request"]
    unfiltered = replace(
        _row(method, _RETRIEVE, found), find_sources=find, find_sources_now=find_now,
        plan_forward=_stating(message, plan_pages),
    )  # fmt: skip
    filtering = replace(unfiltered, plan_forward=_stating(message, plan), filters_documents=True)

    def refine(milvus: MilvusSources, request: RoutedRequest) -> ProtocolRoute:
        filtered = milvus.filters_levels and form.can_filter(request.body.values)
        return filtering if filtered else unfiltered

    return replace(filtering, refine=refine)


def _pages(request: RoutedRequest) -> list[str]:
    """Return the tokens of pages in a search."""
    return _parameters(request, "search_iter_id")


def _by_pages(request: RoutedRequest) -> bool:
    return bool(_parameters(request, "search_iter_v2"))


def _parameters(request: RoutedRequest, key: str) -> list[str]:
    values = request.body.values
    return [
        each.get("value", "")
        for part in (values, *values.get("requests", ()))
        for each in part.get("search_params", ())
        if each.get("key") == key
    ]


def _unchanged(response: FetchedResponse) -> ForwardedPart:
    return ForwardedPart(response.body)


def _remembering(
    milvus: MilvusSources,
    request: RoutedRequest,
    sources: Sources,
    read: Callable[[FetchedResponse], ForwardedPart],
) -> Callable[[FetchedResponse], ForwardedPart]:
    """Return a function that filters a response by `read`, and remembers for which sources it has a
    token of the next page."""
    if not _by_pages(request):
        return read

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        results = grpc_values("SearchResults", response).get("results", {})
        token = results.get("search_iterator_v2_results", {}).get("token")
        if token:
            milvus.remember_page(request, token, sources)
        return read(response)

    return filter_response


def _list_row(
    method: str,
    found: Names,
    member: str,
    source_of: Callable[[MilvusSources, RoutedRequest], Callable[[str], SourceRef]],
) -> ProtocolRoute:
    """Return the row of a list, which shows visible names only: those in `member` of its response,
    beside which stand lists of the same length about them."""
    asked, message = REQUESTS[f"{method}Request"], f"{method}Response"

    def plan(
        milvus: MilvusSources, request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        source = source_of(milvus, request)

        def filter_response(response: FetchedResponse) -> ForwardedPart:
            values = grpc_values(message, response)
            seen = [visibility.permits(source(each)) for each in values.get(member, [])]
            for name, value in values.items():
                # Milvus fills only some of the lists.
                if isinstance(value, list) and len(value) != len(seen):
                    raise UpstreamFailed(f"the data source's `{name}` has another length")
                if isinstance(value, list):
                    values[name] = list(compress(value, seen))
            if all(seen):
                return ForwardedPart(response.body)
            return ForwardedPart(RESPONSES[message].encode(values))

        return ForwardPlan(filter_response=filter_response)

    row = _row(method, _METADATA, found)
    return replace(row, plan_forward=_stating(asked, plan), forwards_unchanged=False)


def _of_databases(milvus: MilvusSources, _request: RoutedRequest) -> Callable[[str], SourceRef]:
    return milvus.source_names.of


def _of_collections(milvus: MilvusSources, request: RoutedRequest) -> Callable[[str], SourceRef]:
    return partial(milvus.source_names.of, given(request).named_database())


def _of_partitions(milvus: MilvusSources, request: RoutedRequest) -> Callable[[str], SourceRef]:
    return partial(milvus.source_names.of, *milvus.parts_of(request))


def _no_names(_given: Given) -> list[Target]:
    return []


def _of_created(given: Given) -> list[Target]:
    """Return the collection that a request creates, under each name that it has there."""
    schema = _schema(given.values)
    inner = Given(
        {"collection_name": schema.get("name"), "db_name": schema.get("dbName")},
        given.spelling, given.database, given.budget,
    )  # fmt: skip
    found = names.of_collection(given)
    if "name" in schema or "dbName" in schema:
        own = inner.values["collection_name"] or found[0].collection
        inner.values.update(collection_name=own)
        found += names.of_collection(inner)
    return found


def _schema(values: Values) -> Values:
    return REQUESTS["CollectionSchema"].decode(values.get("schema", b"")).values


def _refine_creation(_milvus: MilvusSources, request: RoutedRequest) -> ProtocolRoute:
    schema = _schema(request.body.values)
    # Its entities come from another storage, to be judged by a different name.
    return _COPY if schema.keys() & {"external_source", "external_spec"} else _CREATE


_one, _part, _parts = names.of_collection, names.of_partition, names.of_partitions

# Names are forgotten before and after: a look-up in between could have cached either meaning.
_RENAMING: dict[str, Any] = {"before_forward": _change, "after_forward": _change}
_CREATE = _row("CreateCollection", _WRITE, _of_created, **_RENAMING)
_COPY = _row("CreateCollection", _BULK)

# INVARIANT: a method that is not listed is denied as `unclassified_route`, so that an upgrade of
# Milvus opens nothing by itself.
GRPC_ROUTES = (
    _search_row("Search", names.of_search, SEARCH),
    _search_row("HybridSearch", names.of_search, HYBRID),
    _search_row("Query", _parts, QUERY),
    _list_row("ListDatabases", _no_names, "db_names", _of_databases),
    _list_row("ShowCollections", names.of_all, "collection_names", _of_collections),
    _list_row("ShowPartitions", _parts, "partition_names", _of_partitions),
    *_rows(
        _METADATA, _one,
        "HasCollection DescribeCollection GetCollectionStatistics DescribeIndex GetIndexStatistics "
        "GetIndexState GetIndexBuildProgress GetFlushState GetReplicas ListAliases "
        # A namespace is a part of its collection, which is judged as a whole.
        "DescribeNamespace ListNamespaces HasNamespace GetNamespaceStats "
        # Loading makes entities readable, and changes none: clients do it before they search.
        "LoadCollection Prewarm",
    ),
    _row("BatchDescribeCollection", _METADATA, names.of_repeated),
    *_rows(_METADATA, _part, "HasPartition GetPartitionStatistics"),
    *_rows(_METADATA, _parts, "LoadPartitions GetLoadingProgress GetLoadState"),
    _row("DescribeAlias", _METADATA, names.of_alias),
    _row("DescribeDatabase", _METADATA, names.of_database),
    *_rows(_WRITE, _part, "Insert Upsert Delete CreatePartition DropPartition"),
    _row("ReleasePartitions", _WRITE, _parts),
    _row("Flush", _WRITE, names.of_listed),
    replace(_CREATE, refine=_refine_creation),
    _row("DropCollection", _WRITE, _one, **_RENAMING),
    _row("RenameCollection", _WRITE, names.of_renamed, **_RENAMING),
    *_rows(
        _WRITE, _one,
        "TruncateCollection ReleaseCollection AlterCollection AlterCollectionField "
        "AlterCollectionSchema AddCollectionField AddCollectionStructField AddCollectionFunction "
        "AlterCollectionFunction DropCollectionFunction CreateNamespace DropNamespace CreateIndex "
        "AlterIndex DropIndex ManualCompaction",
    ),
    # Point a name at another collection.
    *_rows(_ADMIN, None, "CreateAlias AlterAlias DropAlias"),
    *_rows(_ADMIN, None, "CreateDatabase AlterDatabase DropDatabase"),
    *_rows(
        _ADMIN, None,
        "CreateCredential UpdateCredential DeleteCredential ListCredUsers CreateRole AlterRole "
        "DropRole OperateUserRole SelectRole SelectUser OperatePrivilege OperatePrivilegeV2 "
        "SelectGrant BackupRBAC RestoreRBAC CreatePrivilegeGroup DropPrivilegeGroup "
        "ListPrivilegeGroups OperatePrivilegeGroup AddUserTags DeleteUserTags GetUserTags "
        "ListUsersWithTag CreateRowPolicy DropRowPolicy ListRowPolicies",
    ),
    *_rows(
        _ADMIN, None,
        "CreateResourceGroup DropResourceGroup UpdateResourceGroups TransferNode TransferReplica "
        "ListResourceGroups DescribeResourceGroup AddFileResource RemoveFileResource "
        "ListFileResources",
    ),
    # These name segments, jobs or vectors by their numbers, or concern every collection.
    *_rows(
        _ADMIN, None,
        "FlushAll GetFlushAllState GetPersistentSegmentInfo GetQuerySegmentInfo LoadBalance "
        "GetCompactionState GetCompactionStateWithPlans ListIndexedSegment "
        "DescribeSegmentIndexData DescribePrewarmTask CalcDistance RunAnalyzer "
        "ComputePhraseMatchSlop GetMetrics GetComponentStates Dummy RegisterLink",
    ),
    # Copies of whole collections, to and from other storage or clusters.
    *_rows(
        _BULK, None,
        "Import GetImportState ListImportTasks CreateSnapshot DropSnapshot ListSnapshots "
        "DescribeSnapshot RestoreSnapshot RestoreExternalSnapshot ExportSnapshot "
        "GetExportSnapshotState GetRestoreSnapshotState ListRestoreSnapshotJobs PinSnapshotData "
        "UnpinSnapshotData BatchUpdateManifest RefreshExternalCollection "
        "GetRefreshExternalCollectionProgress ListRefreshExternalCollectionJobs ReplicateMessage "
        "CreateReplicateStream UpdateReplicateConfiguration GetReplicateConfiguration "
        "GetReplicateInfo DumpMessages",
    ),
    # These reveal nothing about any collection.
    *_rows(_OPEN, None, "Connect GetVersion CheckHealth AllocTimestamp"),
    *(
        ProtocolRoute("POST", f"/grpc.health.v1.Health/{each}", _OPEN, rpc=True)
        for each in ("Check", "Watch")
    ),
)  # fmt: skip
