"""A refusal has the form of the data source's own errors, so that its official client raises one of
its own exceptions, with the reason and the event's id. Beside that form stands what Sluice says of
every refusal."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions
import chromadb
import elasticsearch
import opensearchpy
import pytest
import weaviate
from botocore.config import Config
from chromadb.errors import AuthorizationError
from pinecone.errors.exceptions import ForbiddenError
from qdrant_client.http.exceptions import UnexpectedResponse

from sidecar.settings.model import Aws
from tests.sidecar.protocols.aws import REGION, credentials_file
from tests.sidecar.protocols.minimal import Minimal, minimal, scripted
from tests.sidecar.protocols.pinecone import front as pinecones
from tests.sidecar.protocols.qdrant import front as qdrants
from tests.sidecar.protocols.weaviate import front as weaviates
from tests.support.proxy import policy
from tests.support.scripted_source import Seen

DATABASE = "/api/v2/tenants/default_tenant/databases/default_database"
REASON = "allowed_sources"

ANSWERS: dict[str, Any] = {
    "/api/v2/auth/identity": {"user_id": "", "tenant": "default_tenant", "databases": ["x"]},
    "/api/v2/tenants/default_tenant": {"name": "default_tenant"},
    DATABASE: {"id": "1", "name": "default_database", "tenant": "default_tenant"},
    "/aliases": {"result": {"aliases": []}, "status": "ok", "time": 0.0},
    "/_resolve/index/shut": {
        "indices": [{"name": "shut", "attributes": ["open"]}], "aliases": [], "data_streams": [],
    },
    "/v1/meta": {"version": "1.40.0", "modules": {}},
    "/v1/aliases": {"aliases": []},
    "/v1/schema/Shut": {"class": "Shut"},
}  # fmt: skip
"""What the data sources answer to the look-ups before a denial."""


@dataclass(frozen=True)
class Case:
    """A request that is denied, what only its protocol's form has, and a call of its client."""

    kind: str
    target: str
    body: Any
    form: Callable[[int, str], dict[str, Any]]
    call: Callable[[int], Any]
    error: type[Exception]


def aws(service: str, port: int) -> Any:
    return boto3.client(
        service,
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id="AKIAAGENT",
        aws_secret_access_key="none",
        region_name=REGION,
        config=Config(retries={"max_attempts": 1}),
    )


def retrieve(port: int) -> Any:
    client = aws("bedrock-agent-runtime", port)
    try:
        client.retrieve(knowledgeBaseId="SHUT000001", retrievalQuery={"text": "what"})
    except client.exceptions.AccessDeniedException as error:  # made for each client
        raise PermissionError(str(error)) from error


def raw_graphql(port: int) -> Any:
    with weaviates.client(port) as client:
        client.graphql_raw_query("{Get{Shut{title}}}")


def weaviate_exists(port: int) -> Any:
    with weaviates.client(port) as client:
        client.collections.exists("Shut")


def search(port: int) -> Any:
    with opensearchpy.OpenSearch([{"host": "127.0.0.1", "port": port}]) as client:
        client.search(index="shut", body={})


def elastic_search(port: int) -> Any:
    with elasticsearch.Elasticsearch(f"http://127.0.0.1:{port}") as client:
        client.search(index="shut")


def exception(status: int, text: str) -> dict[str, Any]:
    kind = {403: "security_exception", 400: "illegal_argument_exception"}[status]
    cause = {"type": kind, "reason": text}
    return {"error": {"root_cause": [cause], **cause}, "status": status}


CASES = {
    "chroma": Case(
        "chroma",
        f"{DATABASE}/collections",
        {"name": "shut", "get_or_create": True},
        lambda status, _: {
            "error": {403: "AuthorizationError", 400: "InvalidArgumentError"}[status]
        },
        lambda port: chromadb.HttpClient("127.0.0.1", port).get_collection("shut"),
        AuthorizationError,
    ),
    "qdrant": Case(
        "qdrant",
        "/collections/shut/points/query",
        qdrants.QUERY,
        lambda _, text: {"status": {"error": text}, "time": 0.0, "result": None},
        lambda port: qdrants.client(port).get_collection("shut"),
        UnexpectedResponse,
    ),
    "opensearch": Case(
        "opensearch", "/shut/_search", {}, exception, search,
        opensearchpy.exceptions.AuthorizationException,
    ),
    "elasticsearch": Case(
        "opensearch", "/shut/_search", {}, exception, elastic_search,
        elasticsearch.AuthorizationException,
    ),
    "pinecone": Case(
        "pinecone",
        "/query",
        {**pinecones.Q, "namespace": "shut"},
        lambda status, text: {
            "error": {
                "code": {403: "PERMISSION_DENIED", 400: "INVALID_ARGUMENT"}[status],
                "message": text,
            },
            "status": status,
        },
        lambda port: pinecones.index(port).query(vector=[1.0], top_k=1, namespace="shut"),
        ForbiddenError,
    ),
    "weaviate": Case(
        "weaviate",
        "/v1/graphql/batch",
        [weaviates.q("{Get{Shut{title}}}")],
        lambda _, text: {"error": [{"message": text}]},
        weaviate_exists,
        weaviate.exceptions.InsufficientPermissionsError,
    ),
    "weaviate, GraphQL": Case(
        "weaviate",
        "/v1/graphql",
        weaviates.q("{Get{Shut{title}}}"),
        lambda _, text: {
            "data": None, "errors": [{"message": text}], "error": [{"message": text}],
        },
        raw_graphql,
        weaviate.exceptions.InsufficientPermissionsError,
    ),
    "bedrock": Case(
        "bedrock",
        "/knowledgebases/SHUT000001/retrieve",
        {"retrievalQuery": {"text": "what"}},
        lambda status, _: {
            "__type": {403: "AccessDeniedException", 400: "ValidationException"}[status]
        },
        retrieve,
        PermissionError,
    ),
}  # fmt: skip


@asynccontextmanager
async def fronting(tmp_path: Path, kind: str) -> AsyncIterator[Minimal]:
    def answer(_method: str, target: str, _body: bytes) -> tuple[int, Any]:
        path = target.partition("?")[0]
        return (200, ANSWERS[path]) if path in ANSWERS else (404, {})

    changes: dict[str, Any] = {}
    if kind in ("bedrock", "s3"):
        changes["aws"] = Aws(region=REGION, credentials_file=credentials_file(tmp_path))
    open_alone = policy(allowed_sources=(f"{kind}://kb/open",))
    async with minimal(tmp_path, kind, scripted(answer), open_alone, **changes) as front:
        yield front


@pytest.mark.parametrize("name", CASES)
async def test_a_refusal_has_the_form_of_the_sources_own_errors(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    async with fronting(tmp_path, case.kind) as front:
        for body, status, policy_name in (
            (json.dumps(case.body).encode(), 403, "analysts-read"),
            (b'{"a": 1, "a": 2', 400, "unreadable_request"),
        ):
            answered = await front.ask("POST", case.target, raw=body)
            assert answered.status == status, answered.raw
            decision = answered.json["decision"]
            assert (decision["decision"], decision["policy_name"]) == ("DENY", policy_name)
            assert answered.fields["x-sluice-event-id"] == decision["event_id"]
            text = f"{decision['reason']} (event {decision['event_id']})"
            assert case.form(status, text).items() <= answered.json.items()
            # Where the form leaves these names free, they say the same in every protocol.
            assert (answered.json["message"], answered.json["code"]) == (text, status)


@pytest.mark.parametrize("name", CASES)
async def test_the_official_client_raises_its_own_error_with_the_reason(
    tmp_path: Path, name: str
) -> None:
    case = CASES[name]
    async with fronting(tmp_path, case.kind) as front:
        with pytest.raises(case.error, match=REASON) as raised:
            await asyncio.to_thread(case.call, front.port)
        [record] = await front.sidecar.records()
        assert record["pub"]["response"]["decision"] == "DENY"
        assert f"(event {record['eid']})" in str(raised.value)


async def test_s3_s_client_raises_an_access_denied_with_the_reason(tmp_path: Path) -> None:
    async with fronting(tmp_path, "s3") as front:
        client = aws("s3", front.port)
        with pytest.raises(botocore.exceptions.ClientError, match=REASON) as raised:
            await asyncio.to_thread(client.get_object, Bucket="lake", Key="shut/a")
        assert raised.value.response["Error"]["Code"] == "AccessDenied"
        [record] = await front.sidecar.records()
        assert f"(event {record['eid']})" in str(raised.value)


async def test_a_failure_of_the_source_has_its_form_too(tmp_path: Path) -> None:
    async def broken(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"no HTTP\r\n\r\n")

    async with minimal(tmp_path, "chroma", broken) as front:
        answered = await front.ask("GET", "/api/v2/heartbeat")
        assert answered.status == 502
        assert answered.json.keys() == {"error", "message", "code"}
        assert answered.json["error"] == "InternalError"
