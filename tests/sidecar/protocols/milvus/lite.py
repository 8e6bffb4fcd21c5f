"""Milvus Lite's own server, which speaks gRPC, and a stand-in for Milvus' REST API before it."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from milvus_lite.adapter.grpc.servicer import MilvusServicer
from milvus_lite.db import MilvusLite
from pymilvus import DataType, MilvusClient, MilvusException
from pymilvus.grpc_gen import milvus_pb2_grpc

# Without lists, which Milvus Lite can't compare with words.
LEVELS = ("low", "high", "medium", None, "Low", "critical")


class _Calls(grpc.ServerInterceptor):  # type: ignore[misc]
    """Notes the method of each call that arrives."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def intercept_service(self, go_on: Callable[[Any], Any], call: Any) -> Any:
        self.made.append(call.method.rpartition("/")[2])
        return go_on(call)


@dataclass
class Lite:
    """A running Milvus Lite; `calls` are the methods that were called, `client` reaches it without
    the sidecar."""

    port: int
    calls: list[str]
    client: MilvusClient = field(repr=False)


@contextmanager
def running_lite(folder: Path) -> Iterator[Lite]:
    """A Milvus Lite with collections `open_docs` and `shut_docs`, an alias of each, a collection
    with two vectors, and a database `other`."""
    database, calls = MilvusLite(str(folder / "milvus.db")), _Calls()
    with ThreadPoolExecutor(8) as executor:
        server = grpc.server(executor, interceptors=[calls])
        milvus_pb2_grpc.add_MilvusServiceServicer_to_server(MilvusServicer(database), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        client = MilvusClient(uri=f"http://127.0.0.1:{port}")
        try:
            _fill(client)
            calls.made.clear()
            yield Lite(port, calls.made, client)
        finally:
            client.close()
            server.stop(None).wait()
            database.close()


def _fill(client: MilvusClient) -> None:
    for name in ("open_docs", "shut_docs"):
        client.create_collection(name, dimension=2)
        client.insert(name, [_entity(name, n, level) for n, level in enumerate(LEVELS, 1)])
    client.create_partition("open_docs", "theirs")
    client.create_alias("open_docs", "docs")
    client.create_alias("shut_docs", "open_alias")
    schema = client.create_schema(enable_dynamic_field=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("one", DataType.FLOAT_VECTOR, dim=2)
    schema.add_field("two", DataType.FLOAT_VECTOR, dim=2)
    schema.add_field("level", DataType.VARCHAR, max_length=64)
    schema.add_field("acl", DataType.JSON)
    indexes = client.prepare_index_params()
    for name in ("one", "two"):
        indexes.add_index(name, index_type="FLAT", metric_type="L2")
    client.create_collection("open_pairs", schema=schema, index_params=indexes)
    levels = [str(each) for each in LEVELS]
    client.insert("open_pairs", [
        {"id": n, "one": [1.0, n / 10], "two": [n / 10, 1.0], "level": level,
         "acl": {"level": level}}
        for n, level in enumerate(levels, 1)
    ])  # fmt: skip
    client.create_database("other")


def _entity(name: str, number: int, level: Any) -> dict[str, Any]:
    made = {"id": number, "vector": [1.0, number / 10], "text": f"text of {name} {number}"}
    return made if level is None else {**made, "level": level}


def rest(client: MilvusClient) -> Callable[[str, str, bytes], tuple[int, Any]]:
    """Milvus' REST API over a client, as the script for `scripted`: the actions of entities, and
    what a name stands for."""

    def answer(_method: str, target: str, raw: bytes) -> tuple[int, Any]:
        body = json.loads(raw)
        name, fields = body.get("collectionName"), body.get("outputFields")
        try:
            match target.removeprefix("/v2/vectordb/"):
                case "aliases/describe":
                    found = client.describe_alias(body["aliasName"])
                    return 200, {"code": 0, "data": {"collectionName": found["collection_name"]}}
                case "entities/query":
                    rows = client.query(
                        name, filter=body.get("filter", ""), output_fields=fields or ["*"],
                        limit=body.get("limit", 100),
                    )  # fmt: skip
                    return 200, {"code": 0, "data": _plain(rows)}
                case "entities/search":
                    lists = client.search(
                        name, body["data"], filter=body.get("filter", ""), output_fields=fields,
                        limit=body.get("limit", 100),
                    )  # fmt: skip
                    rows = [{**hit, **hit["entity"]} for hits in lists for hit in hits]
                    topks = [len(hits) for hits in lists]
                    return 200, {"code": 0, "data": _plain(rows), "topks": topks}
        except MilvusException as error:
            # Lite has no code of its own for an alias that isn't there.
            return 200, {"code": error.code, "message": error.message}
        return 404, {}

    return answer


def _plain(rows: Any) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "entity"} for row in rows]
