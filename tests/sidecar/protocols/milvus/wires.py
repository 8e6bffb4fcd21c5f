"""Asks Milvus' route table for the sources of a request, on either wire, without a sidecar."""

import json
from collections.abc import Callable
from typing import Any

from sidecar.http.attribution import Attribution
from sidecar.http.request_target import canonical
from sidecar.protocols.milvus.grpc_schema import REQUESTS, RESPONSES
from sidecar.protocols.milvus.routes import Milvus
from sidecar.protocols.milvus.sources import DESCRIBE_ALIAS, SERVICE
from sidecar.protocols.protocol import (
    FetchedResponse,
    GrpcMessage,
    ProtocolRoute,
    RouteClass,
    RoutedRequest,
)
from sidecar.protocols.strict_body import Budget
from tests.sidecar.protocols.milvus.server import Server
from tests.support.proxy import CLOCK, source

Answer = Callable[[str, str, bytes], tuple[int, Any]]
Field = tuple[bytes, bytes]

WHO = Attribution("ada", None, None, None)

# Each action of REST, and the method that does the same.
TWINS = {
    "entities/search": "Search", "entities/query": "Query", "entities/get": "Query",
    "entities/hybrid_search": "HybridSearch", "entities/advanced_search": "HybridSearch",
    "entities/insert": "Insert", "entities/upsert": "Upsert", "entities/delete": "Delete",
    "databases/list": "ListDatabases", "databases/describe": "DescribeDatabase",
    "collections/list": "ShowCollections", "collections/has": "HasCollection",
    "collections/describe": "DescribeCollection",
    "collections/get_stats": "GetCollectionStatistics",
    "collections/get_load_state": "GetLoadState", "collections/load": "LoadCollection",
    "collections/create": "CreateCollection", "collections/drop": "DropCollection",
    "collections/rename": "RenameCollection", "collections/release": "ReleaseCollection",
    "collections/truncate": "TruncateCollection", "collections/flush": "Flush",
    "collections/compact": "ManualCompaction", "collections/alter_properties": "AlterCollection",
    "collections/add_function": "AddCollectionFunction",
    "collections/fields/add": "AddCollectionField",
    "collections/get_compaction_state": "GetCompactionState",
    "partitions/list": "ShowPartitions", "partitions/has": "HasPartition",
    "partitions/get_stats": "GetPartitionStatistics", "partitions/load": "LoadPartitions",
    "partitions/create": "CreatePartition", "partitions/drop": "DropPartition",
    "partitions/release": "ReleasePartitions",
    "indexes/list": "DescribeIndex", "indexes/create": "CreateIndex", "indexes/drop": "DropIndex",
    "indexes/alter_properties": "AlterIndex",
    "aliases/list": "ListAliases", "aliases/describe": "DescribeAlias",
    "aliases/create": "CreateAlias", "aliases/alter": "AlterAlias", "aliases/drop": "DropAlias",
    "databases/create": "CreateDatabase", "databases/alter": "AlterDatabase",
    "users/list": "ListCredUsers", "users/create": "CreateCredential",
    "roles/list": "SelectRole", "roles/grant_privilege_v2": "OperatePrivilegeV2",
    "privilege_groups/list": "ListPrivilegeGroups",
    "resource_groups/transfer_replica": "TransferReplica", "file_resources/add": "AddFileResource",
    "segments/describe": "GetPersistentSegmentInfo", "common/run_analyzer": "RunAnalyzer",
    "jobs/import/create": "Import", "jobs/snapshot/export": "ExportSnapshot",
    "jobs/external_collection/refresh": "RefreshExternalCollection",
    "snapshots/create": "CreateSnapshot",
}  # fmt: skip

_MEMBERS = {
    "dbName": "db_name", "collectionName": "collection_name", "partitionName": "partition_name",
    "partitionNames": "partition_names", "aliasName": "alias", "search": "requests",
    "newCollectionName": "newName", "newDbName": "newDBName", "namespace": "namespace",
}  # fmt: skip


def class_of(path: str) -> RouteClass | None:
    match = Milvus(source(1, "milvus"), CLOCK.monotonic).match("POST", canonical(path))
    return None if match is None else match.route.route_class


def called(method: str, body: dict[str, Any]) -> dict[str, Any]:
    """The values of a call that says the same as a body of REST."""
    values = {
        _MEMBERS[name]: [called("", each) for each in value] if name == "search" else value
        for name, value in body.items()
        if name in _MEMBERS and value not in ("", None)
    }
    if method == "RenameCollection":
        values["oldName"] = values.pop("collection_name")
    if method == "Flush":
        values["collection_names"] = [values.pop("collection_name")]
    return values


class Table:
    """One Milvus' route table, with what it has learnt. `looked` are its look-ups."""

    def __init__(self, server: Answer | None = None, **changes: Any) -> None:
        self.milvus = Milvus(source(1, "milvus", **changes), CLOCK.monotonic)
        self.looked: list[str] = []
        self._answer = server or Server("low").answer

    async def _fetch(self, target: str, body: bytes | None = None, /) -> FetchedResponse:
        self.looked.append(target)
        assert body is not None
        if target != DESCRIBE_ALIAS:
            status, found = self._answer("POST", target, body)
            return FetchedResponse(status, "", [], json.dumps(found).encode())
        asked = REQUESTS["DescribeAliasRequest"].decode(body).values
        rest = {"dbName": asked["db_name"], "aliasName": asked["alias"]}
        _, found = self._answer("POST", "/v2/vectordb/aliases/describe", json.dumps(rest).encode())
        values: dict[str, Any] = {"status": {"code": found["code"]}}
        if "data" in found:
            values["collection"] = found["data"]["collectionName"]
        return FetchedResponse(200, "", [], RESPONSES["DescribeAliasResponse"].encode(values))

    def routed(self, path: str, body: Any, *fields: Field) -> tuple[ProtocolRoute, RoutedRequest]:
        target = canonical(path)
        match = self.milvus.match("POST", target)
        assert match is not None
        request = RoutedRequest("POST", target, (), body, self._fetch, list(fields), WHO, Budget())
        return match.route, request

    async def rest(self, path: str, body: dict[str, Any], *fields: Field) -> list[str]:
        return await self._sources(*self.routed(f"/v2/vectordb/{path}", body, *fields))

    async def grpc(self, method: str, values: dict[str, Any], *fields: Field) -> list[str]:
        # Encoded and decoded, so that the schema has these fields.
        data = REQUESTS[f"{method}Request"].encode(values)
        message = GrpcMessage(REQUESTS[f"{method}Request"].decode(data).values, data)
        return await self._sources(*self.routed(f"{SERVICE}/{method}", message, *fields))

    async def _sources(self, route: ProtocolRoute, request: RoutedRequest) -> list[str]:
        """The sources of a request, without the part that all ids have."""
        assert route.find_sources is not None
        assert route.find_sources_now is not None
        found = await route.find_sources(self.milvus, request)
        made = len(self.looked)
        # The second time, all names are cached.
        assert route.find_sources_now(self.milvus, request) == found
        assert len(self.looked) == made
        return [each.source_id.removeprefix("milvus://kb/") for each in found]
