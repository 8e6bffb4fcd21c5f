"""A real Chroma server: what may be read comes back as Chroma sends it, and nothing else does.
Every trap of data-sources.md 5.1 is a test here."""

import asyncio
import hashlib
import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chromadb
import pytest

from sidecar.http.request_target import canonical
from sidecar.protocols.chroma.routes import ROUTES, Chroma
from sidecar.protocols.route_table import RouteClass
from sidecar.proxy.pipeline.lineage import DELAY_SECONDS
from sidecar.settings.model import NamedSource
from tests.sidecar.protocols.conftest import TENANT, Front, fronting
from tests.sidecar.proxy.proxy_setup import CLOCK, policy, source
from tests.sidecar.proxy.raw_client import Answered

QUERY = {"query_embeddings": [[1.0, 2.0]], "n_results": 1}
UNKNOWN = "11111111-2222-3333-4444-555555555555"


def denied(answered: Answered, policy_name: str, status: int = 403) -> None:
    assert answered.status == status, answered.raw[:400]
    assert answered.fields["x-sluice-decision"] == "DENY"
    assert answered.json["decision"]["policy_name"] == policy_name
    assert b"text of" not in answered.raw


def client(front: Front, port: int) -> Any:
    return chromadb.HttpClient(host="127.0.0.1", port=port, database=front.database)


# what may be read


async def test_the_client_reads_through_the_listener_as_from_chroma(front: Front) -> None:
    def read(port: int) -> list[Any]:
        collection = client(front, port).get_collection("open_docs", embedding_function=None)
        return [
            collection.query(query_embeddings=[[1.0, 2.0]], n_results=1),
            collection.get(include=["documents", "metadatas", "embeddings"])["documents"],
            collection.count(),
            collection.peek()["ids"],
        ]

    through = await asyncio.to_thread(read, front.port)
    assert through == await asyncio.to_thread(read, front.chroma)
    decisions = await front.sidecar.decisions()
    assert {each[0] for each in decisions} == {"ALLOW"}
    assert {each[2] for each in decisions} == {front.source("open_docs")}


async def test_a_denied_collection_raises_with_the_reason(front: Front) -> None:
    def read() -> None:
        client(front, front.port).get_collection("shut_docs", embedding_function=None)

    with pytest.raises(Exception, match=r"shut_docs.*allowed_sources.*analysts-read"):
        await asyncio.to_thread(read)
    assert (await front.sidecar.decisions())[-1] == (
        "DENY", "analysts-read", front.source("shut_docs"),
    )  # fmt: skip
    assert not any("shut_docs" in line for line in front.relay.lines)


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("/query", QUERY),
        ("/query?limit=1&offset=0", {**QUERY, "include": ["documents", "embeddings"]}),
        ("/get", {}),
        ("/get", {"include": ["documents", "metadatas", "uris"], "limit": 1}),
        ("/query", {"wrong": True}),
        ("/search", {"searches": []}),
    ],
)
async def test_an_allowed_answer_is_chromas_byte_for_byte(
    front: Front, verb: str, body: object
) -> None:
    def straight() -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", front.chroma)
        connection.request(
            "POST", front.one("open_docs", verb), json.dumps(body),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        answer = connection.getresponse()
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, answer.read(), fields

    status, body_bytes, fields = await asyncio.to_thread(straight)
    answered = await front.ask("POST", front.one("open_docs", verb), body)
    assert (answered.status, answered.body) == (status, body_bytes)
    theirs = {**answered.fields}
    event_id = theirs.pop("x-sluice-event-id")
    assert {**theirs, "date": ""} == {**fields, "date": ""}
    [lineage] = await front.sidecar.lineage()
    assert lineage["event"]["id"] == event_id
    assert lineage["detail"]["status"] == status
    assert lineage["detail"]["bytes"] == len(body_bytes)
    assert lineage["detail"]["sha256"] == hashlib.sha256(body_bytes).hexdigest()
    assert lineage["outcome"] == "completed"


async def test_plain_names_and_levels_come_from_the_configuration(
    chroma: int, tmp_path: Path
) -> None:
    readers = policy(allowed_sources=("handbook", "contracts"), max_sensitivity="medium")
    async with fronting(chroma, tmp_path, readers) as front:
        from tests.sidecar.proxy.proxy_setup import listening

        names = {
            front.source("open_docs"): NamedSource("handbook", "low"),
            front.source("shut_docs"): NamedSource("contracts", "high"),
        }
        configured = source(front.chroma, "chroma", names=names)
        async with listening(front.sidecar, configured) as port:
            front.port = port
            assert (await front.ask("POST", front.one("open_docs", "/query"), QUERY)).status == 200
            denied(
                await front.ask("POST", front.one("shut_docs", "/query"), QUERY), "analysts-read"
            )
            denied(
                await front.ask("POST", front.one("open_more", "/query"), QUERY), "analysts-read"
            )
        assert await front.sidecar.decisions() == [
            ("ALLOW", "analysts-read", "handbook"),
            ("DENY", "analysts-read", "contracts"),
            ("DENY", "analysts-read", front.source("open_more")),
        ]
        levels = [
            record["pub"]["request"]["sensitivity_level"]
            for record in await front.sidecar.records()
            if record["kind"] == "decision"
        ]
        assert levels == ["low", "high", "medium"]


# the id, in every form and under every path

FORMS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "upper case": str.upper,
    "without hyphens": lambda text: text.replace("-", ""),
    "urn": lambda text: f"urn:uuid:{text}",
    "braces": lambda text: f"{{{text}}}",
    "escaped braces": lambda text: f"%7B{text}%7D",
    "escaped": lambda text: "".join(f"%{ord(each):02x}" for each in text),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("verb", ["query", "get", "search"])
async def test_no_form_of_a_denied_id_is_read(front: Front, form: str, verb: str) -> None:
    # Cached in its usual form, and allowed in another: neither may matter.
    await front.ask("POST", front.one("open_docs", "/query"), QUERY)
    text = FORMS[form](front.ids["shut_docs"])
    before = len(front.relay.lines)
    answered = await front.ask("POST", f"{front.names}/{text}/{verb}", QUERY)
    denied(answered, "analysts-read")
    assert [line for line in front.relay.lines[before:] if "by-id" not in line] == []
    assert (await front.sidecar.decisions())[-1][2] == front.source("shut_docs")


@pytest.mark.parametrize("form", FORMS)
async def test_every_form_of_an_allowed_id_is_read(front: Front, form: str) -> None:
    text = FORMS[form](front.ids["open_docs"])
    answered = await front.ask("POST", f"{front.names}/{text}/get", {})
    assert answered.status == 200
    assert b"text of open_docs" in answered.body


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    "path",
    [
        "tenants/{tenant}/databases/default_database",
        "tenants/nobody/databases/{database}",
        "tenants/nobody/databases/nothing",
        "tenants/open/databases/open_docs",
    ],
)
async def test_tenant_and_database_of_the_path_lead_nowhere_else(
    front: Front, path: str, known: bool
) -> None:
    if known:
        await front.ask("GET", front.names)
    stated = path.format(tenant=TENANT, database=front.database)
    for verb in ("query", "get"):
        answered = await front.ask(
            "POST", f"/api/v2/{stated}/collections/{front.ids['shut_docs']}/{verb}", QUERY
        )
        # Cached: judged as what it is. Not cached: Chroma finds it only in its own database.
        denied(answered, "analysts-read" if known else "unresolved_source")
    assert not any("/query" in line or "/get" in line for line in front.relay.lines)


async def test_a_cached_id_is_judged_by_its_collection_not_by_the_path(front: Front) -> None:
    await front.ask("GET", f"{front.names}/open_docs")
    stated = f"/api/v2/tenants/x/databases/shut_docs/collections/{front.ids['open_docs']}/get"
    await front.ask("POST", stated, {})
    assert (await front.sidecar.decisions())[-1][2] == front.source("open_docs")


@pytest.mark.parametrize("verb", ["query", "get", "search"])
async def test_an_unknown_id_is_denied_after_one_look_up(front: Front, verb: str) -> None:
    denied(await front.ask("POST", f"{front.names}/{UNKNOWN}/{verb}", QUERY), "unresolved_source")
    assert front.relay.lines == [f"GET {front.names}/by-id/{UNKNOWN}"]
    assert await front.sidecar.decisions() == [("DENY", "unresolved_source", "chroma://kb")]


@pytest.mark.parametrize(
    "text",
    ["open_docs", "1", "not-a-uuid", f"{UNKNOWN}x", f"%20{UNKNOWN}", f"+{UNKNOWN}", "by-id",
     UNKNOWN.replace("1", "_"), UNKNOWN.replace("-", "--"), f"URN:UUID:{UNKNOWN}"],
)  # fmt: skip
async def test_an_invalid_id_is_denied_without_a_look_up(front: Front, text: str) -> None:
    denied(await front.ask("POST", f"{front.names}/{text}/query", QUERY), "unresolved_source")
    assert front.relay.lines == []


@pytest.mark.parametrize("what", ["count", "indexing_status", "fork_count"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_what_describes_a_collection_is_judged_like_it(
    front: Front, method: str, what: str
) -> None:
    shut = await front.ask(method, front.one("shut_docs", f"/{what}"))
    assert shut.status == 403
    assert not any(what in line for line in front.relay.lines)
    await front.ask(method, front.one("open_docs", f"/{what}"))
    assert [each[:1] + each[2:] for each in await front.sidecar.decisions()] == [
        ("DENY", front.source("shut_docs")),
        ("ALLOW", front.source("open_docs")),
    ]


async def test_an_id_is_looked_up_once_and_then_cached(front: Front) -> None:
    for _ in range(3):
        await front.ask("POST", front.one("open_docs", "/get"), {})
    assert sum("by-id" in line for line in front.relay.lines) == 1


@pytest.mark.parametrize("learnt", ["name", "list", "by-id"])
async def test_ids_are_cached_from_responses(front: Front, learnt: str) -> None:
    target = {
        "name": f"{front.names}/open_docs",
        "list": front.names,
        "by-id": f"{front.names}/by-id/{front.ids['open_docs']}",
    }[learnt]
    assert (await front.ask("GET", target)).status == 200
    front.relay.lines.clear()
    assert (await front.ask("POST", front.one("open_docs", "/get"), {})).status == 200
    assert front.relay.lines == [f"POST {front.one('open_docs', '/get')}"]


async def test_an_unreachable_data_source_leaves_a_new_id_unresolved(
    front: Front, tmp_path: Path
) -> None:
    from tests.sidecar.proxy.proxy_setup import listening
    from tests.sidecar.proxy.scripted_source import data_source

    async with data_source() as gone:
        pass
    async with listening(front.sidecar, source(gone.port, "chroma")) as port:
        front.port = port
        denied(await front.ask("POST", front.one("open_docs", "/get"), {}), "unresolved_source")


# names


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("name", ["shut_docs", "%73hut_docs", "shut%5fdocs", "s%68ut_docs"])
async def test_looking_up_a_denied_name_is_denied_and_recorded(
    front: Front, method: str, name: str
) -> None:
    assert (await front.ask(method, f"{front.names}/{name}")).status == 403
    assert front.relay.lines == []
    assert await front.sidecar.decisions() == [("DENY", "analysts-read", front.source("shut_docs"))]


@pytest.mark.parametrize("form", FORMS)
async def test_looking_up_a_denied_id_is_denied_like_its_name(front: Front, form: str) -> None:
    text = FORMS[form](front.ids["shut_docs"])
    answered = await front.ask("GET", f"{front.names}/by-id/{text}")
    denied(answered, "analysts-read")
    # The only look-up is the sidecar's own.
    assert len(front.relay.lines) == 1
    assert b"shut_docs" in answered.body, "the reason names what was denied"
    assert b'"configuration_json"' not in answered.raw


async def test_an_allowed_name_that_does_not_exist_is_chromas_404(front: Front) -> None:
    answered = await front.ask("GET", f"{front.names}/open_nothing")
    assert answered.status == 404
    assert b"NotFoundError" in answered.body


async def test_a_denied_name_looks_the_same_whether_it_exists(front: Front) -> None:
    there = await front.ask("GET", f"{front.names}/shut_docs")
    absent = await front.ask("GET", f"{front.names}/shut_none")
    assert there.status == absent.status == 403
    assert there.json["message"].replace("shut_docs", "") == absent.json["message"].replace(
        "shut_none", ""
    )


async def test_a_looked_up_name_is_chromas_answer_byte_for_byte(front: Front) -> None:
    answered = await front.ask("GET", f"{front.names}/open_docs", None, "Accept-Encoding: gzip")
    assert front.relay.answered.endswith(b"\r\n\r\n" + answered.body)
    assert answered.json["id"] == front.ids["open_docs"]
    head = await front.ask("HEAD", f"{front.names}/open_docs")
    assert (head.status, head.body) == (200, b"")
    assert head.fields["content-length"] == str(len(answered.body))


async def test_a_collection_named_like_another_ones_id_is_its_own(
    front: Front, tmp_path: Path
) -> None:
    shut = front.ids["shut_docs"]
    lookalike = front.create(shut)
    everything_but = policy(
        allowed_sources=("chroma://kb/*",), denied_sources=(front.source("shut_docs"),)
    )
    from tests.sidecar.proxy.proxy_setup import listening, sidecar

    (folder := tmp_path / "other").mkdir()
    async with (
        sidecar(folder, everything_but) as made,
        listening(made, source(front.chroma, "chroma")) as port,
    ):
        front.port = port
        # By name it is the look-alike, and cached under its own id.
        answered = await front.ask("GET", f"{front.names}/{shut}")
        assert answered.json["id"] == lookalike
        # By id it is still the closed one.
        denied(await front.ask("POST", f"{front.names}/{shut}/get", {}), "analysts-read")
        assert (await front.ask("POST", f"{front.names}/{lookalike}/get", {})).status == 200


@pytest.mark.parametrize(
    ("crn", "source_id"),
    [
        ("{tenant}:{database}:shut_docs", "{shut}"),
        ("{tenant}%3A{database}%3ashut_docs", "{shut}"),
        ("{tenant}:{database}:%73hut_docs", "{shut}"),
    ],
)
async def test_a_resource_name_is_judged_by_its_parts(
    front: Front, crn: str, source_id: str
) -> None:
    text = crn.format(tenant=TENANT, database=front.database)
    denied(await front.ask("GET", f"/api/v2/collections/{text}"), "analysts-read")
    assert front.relay.lines == []
    expected = source_id.format(shut=front.source("shut_docs"))
    assert (await front.sidecar.decisions())[0][2] == expected


@pytest.mark.parametrize(
    "crn", ["open_docs", "a:b", "a:b:c:d", ":b:c", "a::c", "a:b:", "shut_docs", UNKNOWN]
)
async def test_a_resource_name_of_another_form_is_denied(front: Front, crn: str) -> None:
    denied(await front.ask("GET", f"/api/v2/collections/{crn}"), "unresolved_source")
    assert front.relay.lines == []


# lists


async def listed(front: Front, query: str = "") -> list[str]:
    answered = await front.ask("GET", f"{front.names}{query}")
    assert answered.status == 200, answered.raw
    assert answered.fields["content-length"] == str(len(answered.body))
    return [each["name"] for each in answered.json]


async def test_a_list_shows_what_may_be_read(front: Front) -> None:
    assert sorted(await listed(front)) == ["open_docs", "open_more"]
    assert await front.sidecar.decisions() == []


async def test_limit_and_offset_count_what_may_be_read(front: Front) -> None:
    for number in range(6):
        front.create(f"shut_{number}")
        front.create(f"open_{number}")
    everything = await listed(front)
    assert len(everything) == 8
    for limit in range(1, 9):
        pages = []
        for offset in range(0, 8, limit):
            page = await listed(front, f"?limit={limit}&offset={offset}")
            # A short page that isn't the last would reveal that something is hidden.
            assert len(page) == min(limit, 8 - offset)
            pages += page
        assert pages == everything
    assert await listed(front, "?limit=0") == []
    assert await listed(front, "?offset=99") == []
    assert await listed(front, "?offset=7") == everything[7:]
    assert await listed(front, "?%6cimit=2&x=y") == everything[:2]


@pytest.mark.parametrize(
    "query", ["?limit=x", "?limit=-1", "?limit=1&limit=2", "?limit=1&%6cimit=9", "?offset=1e3",
              "?limit=", "?limit=99999999999999999999"],
)  # fmt: skip
async def test_an_ambiguous_limit_is_refused(front: Front, query: str) -> None:
    denied(await front.ask("GET", f"{front.names}{query}"), "unreadable_request", 400)
    assert front.relay.lines == []


async def test_a_long_list_is_walked_page_by_page(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.protocols.chroma.lists.PAGE", 3)
    for number in range(8):
        front.create(f"open_{number}")
    assert len(await listed(front)) == 10
    answered = await front.ask("GET", f"{front.base}/collections_count")
    assert answered.body == b"10"


async def test_the_count_is_of_what_may_be_read(front: Front) -> None:
    answered = await front.ask("GET", f"{front.base}/collections_count")
    assert (answered.status, answered.body) == (200, b"2")
    assert answered.fields["content-length"] == "1"


async def test_a_head_request_reveals_no_more_than_the_list(front: Front) -> None:
    whole = await front.ask("GET", front.names)
    head = await front.ask("HEAD", front.names)
    assert (head.status, head.body) == (200, b"")
    assert head.fields["content-length"] == str(len(whole.body))


async def test_a_list_of_which_all_may_be_read_is_chromas_byte_for_byte(
    chroma: int, tmp_path: Path
) -> None:
    async with fronting(chroma, tmp_path, policy()) as front:
        answered = await front.ask("GET", front.names)
        assert front.relay.answered.endswith(b"\r\n\r\n" + answered.body)
        assert len(answered.json) == 3


async def test_the_client_lists_and_counts(front: Front) -> None:
    def read() -> tuple[list[str], int]:
        through = client(front, front.port)
        return sorted(each.name for each in through.list_collections()), through.count_collections()

    assert await asyncio.to_thread(read) == (["open_docs", "open_more"], 2)


async def test_a_list_of_a_missing_database_is_chromas_response(front: Front) -> None:
    target = f"/api/v2/tenants/{TENANT}/databases/nothing/collections"
    assert (await front.ask("GET", target)).json == front.direct("GET", target)[1]


# routes


async def test_every_route_that_chroma_has_is_classed(front: Front) -> None:
    described = front.direct("GET", "/openapi.json")[1]["paths"]
    dialect = Chroma(source(1, "chroma"), CLOCK.monotonic)
    for path, methods in described.items():
        target = canonical(path.replace("{", "").replace("}", ""))
        for method in methods:
            match = dialect.match(method.upper(), target)
            assert match is not None, f"{method} {path}"


async def test_the_classes_are_those_of_the_specification() -> None:
    classes: dict[str, RouteClass] = {}
    for route in ROUTES:
        for method in route.methods.split():
            classes[f"{method} {route.pattern.split('/')[-1]}"] = route.route_class
    assert (
        classes["POST query"]
        == classes["POST get"]
        == classes["POST search"]
        == RouteClass.RETRIEVE
    )
    for verb in ("add", "update", "upsert", "delete"):
        assert classes[f"POST {verb}"] == RouteClass.WRITE
    for verb in ("fork", "attach", "detach"):
        assert classes[f"POST {verb}"] == RouteClass.BULK
    assert classes["POST reset"] == RouteClass.ADMIN


CLOSED = [
    ("POST", "/api/v2/reset"),
    ("POST", "/api/v2/tenants"),
    ("PATCH", f"/api/v2/tenants/{TENANT}"),
    ("GET", f"/api/v2/tenants/{TENANT}/databases"),
    ("POST", f"/api/v2/tenants/{TENANT}/databases"),
    ("DELETE", "{base}"),
    ("POST", "{one}/fork"),
    ("POST", "{one}/functions/attach"),
    ("GET", "{one}/functions/x"),
    ("POST", "{one}/attached_functions/x/detach"),
]


@pytest.mark.parametrize(("method", "path"), CLOSED)
async def test_what_copies_or_administers_is_closed(writing: Front, method: str, path: str) -> None:
    for name in ("open_docs", "shut_docs"):
        target = path.format(base=writing.base, one=writing.one(name))
        denied(await writing.ask(method, target, {"new_name": "open_copy"}), "route_denied")
    assert writing.relay.lines == []


UNCLASSED = [
    ("GET", "/"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("GET", "/metrics"),
    ("GET", "/api/v1/heartbeat"),
    ("GET", "/api/v1/collections"),
    ("GET", "/api/v3/heartbeat"),
    ("GET", "/API/v2/heartbeat"),
    ("GET", "/api/V2/heartbeat"),
    ("GET", "/api/v2/heartbeat/"),
    ("GET", "/api/v2/"),
    ("POST", "/api/v2/heartbeat"),
    ("GET", "{one}"),
    ("GET", "{names}/"),
    ("GET", "{names}/shut_docs/"),
    ("GET", "{names}/by-id/{id}/"),
    ("GET", "{one}/query"),
    ("HEAD", "{one}/query"),
    ("PUT", "{one}/query"),
    ("PATCH", "{one}/query"),
    ("OPTIONS", "{one}/query"),
    ("TRACE", "{one}/query"),
    ("POST", "{one}/Query"),
    ("POST", "{one}/query/"),
    ("POST", "{one}/QUERY"),
    ("POST", "{one}/export"),
    ("POST", "{one}"),
    ("OPTIONS", "{names}"),
]


@pytest.mark.parametrize(("method", "path"), UNCLASSED)
async def test_an_unknown_route_is_denied(writing: Front, method: str, path: str) -> None:
    target = path.format(
        one=writing.one("shut_docs"), names=writing.names, id=writing.ids["shut_docs"]
    )
    answered = await writing.ask(method, target)
    assert answered.status == 403
    [decision] = await writing.sidecar.decisions()
    # An id in the place of a name is judged as that name.
    if path == "{one}":
        assert decision[1] in ("analysts-read", "unclassified_route")
    else:
        assert decision == ("DENY", "unclassified_route", "chroma://kb")
    assert writing.relay.lines == []


@pytest.mark.parametrize(
    "path",
    [
        "/api/v2/../v2/heartbeat",
        "//api/v2/heartbeat",
        "/api//v2/heartbeat",
        "{names}//shut_docs",
        "{names}/./shut_docs",
        "{names}/open_docs/../shut_docs",
        "{names}/open_docs/%2e%2e/shut_docs",
        "{names}/open_docs%2f..%2fshut_docs",
        "{names}/open_docs/..;/shut_docs",
        "{names}/shut_docs%00",
        "{names}/shut_docs#",
        "{names}/%2573hut_docs",
        "{one}%2fquery",
    ],
)
async def test_an_ambiguous_path_is_refused(front: Front, path: str) -> None:
    target = path.format(names=front.names, one=front.one("shut_docs"))
    denied(await front.ask("GET", target), "unreadable_request", 400)
    assert front.relay.lines == []


OPEN = [
    "/api/v2", "/api/v2/heartbeat", "/api/v2/healthcheck", "/api/v2/version",
    "/api/v2/pre-flight-checks", "/api/v2/auth/identity", f"/api/v2/tenants/{TENANT}", "{base}",
]  # fmt: skip


@pytest.mark.parametrize("path", OPEN)
async def test_what_clients_need_passes_without_a_decision(front: Front, path: str) -> None:
    target = path.format(base=front.base)
    answered = await front.ask("GET", target)
    assert answered.status == 200
    assert "x-sluice-event-id" not in answered.fields
    assert front.relay.lines == [f"GET {target}"]
    assert await front.sidecar.records() == []


@pytest.mark.parametrize(
    "name", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "x_http_method"]
)
async def test_a_method_override_overrides_nothing(front: Front, name: str) -> None:
    denied(
        await front.ask("GET", front.one("shut_docs", "/query"), None, f"{name}: POST"),
        "unclassified_route",
    )
    await front.ask("GET", "/api/v2/heartbeat", None, f"{name}: DELETE")
    assert front.relay.lines == ["GET /api/v2/heartbeat"]


@pytest.mark.parametrize(
    "query",
    ["?collection_id={shut}", "?collection={shut}&name=shut_docs", "?tenant=x&database=y",
     "?limit=10&offset=0", "?/../../{shut}/query", "?"],
)  # fmt: skip
async def test_a_query_string_changes_no_source(front: Front, query: str) -> None:
    target = front.one("open_docs", "/get") + query.format(shut=front.ids["shut_docs"])
    answered = await front.ask("POST", target, {})
    assert b"text of shut" not in answered.raw
    assert front.relay.lines[-1] == f"POST {target}"
    assert (await front.sidecar.decisions())[-1][2] == front.source("open_docs")


# bodies

BODIES = {
    "a key twice": b'{"n_results":1,"n_results":9,"query_embeddings":[[1.0,2.0]]}',
    "a key twice, escaped": b'{"n_results":1,"n\\u005fresults":9,"query_embeddings":[[1,2]]}',
    "a key twice inside": b'{"where":{"page":1,"page":2}}',
    "a key twice deep inside": b'{"where":{"$and":[{"page":{"$gt":1,"$gt":0}},{"a":1}]}}',
    "a key twice in a list": b'{"x":[1,2,{"a":1,"a":1}]}',
    "not JSON": b"{",
    "nothing": b"",
    "an array": b"[]",
    "a string": b'"x"',
    "a byte order mark": b'\xef\xbb\xbf{"ids":[]}',
    "utf-16": '{"ids":[]}'.encode("utf-16"),
    "something behind": b'{"ids":[]} x',
    "two objects": b'{"ids":[]}{"ids":[]}',
    "NaN": b'{"limit":NaN}',
    "a lone surrogate": b'{"ids":["\\ud800"]}',
    "not UTF-8": b'{"ids":["\xff"]}',
    "too deep": b'{"where":' + b"[" * 3000 + b"]" * 3000 + b"}",
}


@pytest.mark.parametrize("name", BODIES)
async def test_an_ambiguous_body_is_refused(front: Front, name: str) -> None:
    answered = await front.ask("POST", front.one("open_docs", "/get"), raw=BODIES[name])
    denied(answered, "unreadable_request", 400)
    assert front.relay.lines == []
    assert await front.sidecar.decisions() == [("DENY", "unreadable_request", "chroma://kb")]


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
     "application/json; charset=utf-16", "application/vnd.api+json", "application/jsonx"],
)  # fmt: skip
async def test_a_body_of_another_type_is_refused(front: Front, kind: str) -> None:
    answered = await front.ask("POST", front.one("open_docs", "/get"), {}, f"Content-Type: {kind}")
    denied(answered, "unreadable_request", 400)
    assert front.relay.lines == []


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "x"])
async def test_an_encoded_body_is_refused(front: Front, coding: str) -> None:
    answered = await front.ask(
        "POST", front.one("open_docs", "/get"), {}, f"Content-Encoding: {coding}"
    )
    denied(answered, "unreadable_request", 400)
    assert front.relay.lines == []


async def test_a_body_coded_as_itself_is_read(front: Front) -> None:
    answered = await front.ask(
        "POST", front.one("open_docs", "/get"), {}, "Content-Encoding: identity"
    )
    assert answered.status == 200


async def test_a_body_past_the_limit_is_denied_not_passed(front: Front) -> None:
    large = b'{"ids":["' + b"x" * (4 * 1024 * 1024) + b'"]}'
    denied(
        await front.ask("POST", front.one("open_docs", "/get"), raw=large),
        "unreadable_request", 400,
    )  # fmt: skip
    assert front.relay.lines == []


async def test_a_chunked_body_past_the_limit_is_denied_not_passed(front: Front) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    head = f"POST {front.one('open_docs', '/get')} HTTP/1.1\r\nHost: kb\r\n"
    writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
    block = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    try:
        for _ in range(80):
            writer.write(block)
            await writer.drain()
    except ConnectionError:
        pass
    raw = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    assert raw.startswith(b"HTTP/1.1 400 ")
    assert front.relay.lines == []


async def test_the_bytes_that_were_judged_are_the_bytes_that_arrive(
    front: Front, tmp_path: Path
) -> None:
    from tests.sidecar.proxy.proxy_setup import listening
    from tests.sidecar.proxy.scripted_source import data_source

    described = front.direct("GET", f"{front.names}/open_docs")[1]
    async with data_source() as upstream:

        async def script(_seen: Any, writer: asyncio.StreamWriter) -> None:
            body = json.dumps(described).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

        upstream.script = script
        async with listening(front.sidecar, source(upstream.port, "chroma")) as port:
            front.port = port
            odd = b' {\n"limit" :1.0 , "where":{"a:b":"\\u00e9:"}, "x":1e2}\r\n '
            await front.ask("POST", front.one("open_docs", "/get"), raw=odd)
            assert upstream.seen[-1].body == odd
            assert upstream.seen[-1].values("content-length") == [str(len(odd))]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(
                f"POST {front.one('open_docs', '/get')} HTTP/1.1\r\nHost: kb\r\n"
                "Transfer-Encoding: chunked\r\n\r\n3\r\n{ }\r\n0\r\n\r\n".encode()
            )
            await reader.readuntil(b"\r\n\r\n")
            writer.close()
            assert upstream.seen[-1].body == b"{ }"
            assert upstream.seen[-1].values("transfer-encoding") == ["chunked"]


# writes

WRITES = [
    ("POST", "{one}/add", {"ids": ["x"], "embeddings": [[1.0, 2.0]]}),
    ("POST", "{one}/update", {"ids": ["1"], "documents": ["y"]}),
    ("POST", "{one}/upsert", {"ids": ["1"], "embeddings": [[1.0, 2.0]]}),
    ("POST", "{one}/delete", {"ids": ["1"]}),
    ("PUT", "{one}", {"new_name": "open_else"}),
    ("POST", "{names}", {"name": "{name}"}),
    ("POST", "{names}", {"name": "{name}", "get_or_create": True}),
    ("DELETE", "{names}/{name}", None),
]


def written(front: Front, name: str, path: str, body: Any) -> tuple[str, Any]:
    target = path.format(one=front.one(name), names=front.names, name=name)
    if body and body.get("name"):
        body = {**body, "name": name}
    return target, body


@pytest.mark.parametrize(
    ("method", "path", "body"), [each for each in WRITES if "get_or_create" not in str(each)]
)
@pytest.mark.parametrize("name", ["open_docs", "shut_docs"])
async def test_writes_are_denied_unless_they_are_allowed(
    front: Front, name: str, method: str, path: str, body: Any
) -> None:
    target, body = written(front, name, path, body)
    denied(await front.ask(method, target, body), "write_denied")
    assert front.relay.lines == []
    assert [each[:2] for each in await front.sidecar.decisions()] == [("DENY", "write_denied")]


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
async def test_allowed_writes_are_judged_like_reads(
    writing: Front, method: str, path: str, body: Any
) -> None:
    target, sent = written(writing, "shut_docs", path, body)
    denied(await writing.ask(method, target, sent), "analysts-read")
    assert all("by-id" in line for line in writing.relay.lines)
    assert (await writing.sidecar.decisions())[-1][2] == writing.source("shut_docs")
    _, found = writing.direct("POST", writing.one("shut_docs", "/get"), {})
    assert found["documents"] == ["text of shut_docs"]


async def test_an_allowed_write_is_made_and_recorded(writing: Front) -> None:
    def write() -> list[str]:
        through = client(writing, writing.port)
        collection = through.get_or_create_collection("open_new", embedding_function=None)
        collection.add(ids=["1", "2"], embeddings=[[1.0, 2.0], [2.0, 1.0]], documents=["a", "b"])
        collection.upsert(ids=["2"], embeddings=[[2.0, 1.0]], documents=["c"])
        collection.delete(ids=["1"])
        found = collection.get()["documents"]
        collection.modify(name="open_renamed")
        through.delete_collection("open_renamed")
        return found  # type: ignore[no-any-return]

    assert await asyncio.to_thread(write) == ["c"]
    decisions = await writing.sidecar.decisions()
    assert {each[0] for each in decisions} == {"ALLOW"}
    assert writing.source("open_renamed") in {each[2] for each in decisions}
    # A write is not a retrieval: lineage follows shortly, for the one read only.
    assert len(await writing.sidecar.lineage()) == 1
    await asyncio.sleep(5 * DELAY_SECONDS)
    kinds = [each["kind"] for each in await writing.sidecar.records()]
    assert kinds.count("lineage") == 1


async def test_get_or_create_does_not_open_a_closed_collection(writing: Front) -> None:
    answered = await writing.ask(
        "POST", writing.names, {"name": "shut_docs", "get_or_create": True}
    )
    denied(answered, "analysts-read")
    assert writing.relay.lines == []


@pytest.mark.parametrize(
    "body", [{"name": None}, {"name": ""}, {"name": ["open_docs"]}, {}, {"name": {"x": 1}}]
)
async def test_a_collection_without_a_name_is_not_created(writing: Front, body: Any) -> None:
    denied(await writing.ask("POST", writing.names, body), "unreadable_request", 400)
    assert writing.relay.lines == []


async def test_a_rename_needs_both_names(writing: Front) -> None:
    shut_to_open = await writing.ask("PUT", writing.one("shut_docs"), {"new_name": "open_now"})
    denied(shut_to_open, "analysts-read")
    open_to_shut = await writing.ask("PUT", writing.one("open_docs"), {"new_name": "shut_now"})
    denied(open_to_shut, "analysts-read")
    assert not any(line.startswith("PUT") for line in writing.relay.lines)
    # One denial each, and no ALLOW for the other name beside it.
    assert [each[0] for each in await writing.sidecar.decisions()] == ["DENY", "DENY"]
    renamed = await writing.ask("PUT", writing.one("open_docs"), {"new_name": "open_now"})
    assert renamed.status == 200
    same = await writing.ask("PUT", writing.one("open_more"), {"new_metadata": {"a": 1}})
    assert same.status == 200


async def test_a_rename_under_another_database_is_judged_where_the_collection_is(
    writing: Front,
) -> None:
    # Chroma renames by id and does not look at the path.
    await writing.ask("GET", writing.names)
    stated = f"/api/v2/tenants/{TENANT}/databases/open_other/collections"
    answered = await writing.ask(
        "PUT", f"{stated}/{writing.ids['open_docs']}", {"new_name": "shut_now"}
    )
    denied(answered, "analysts-read")
    assert (await writing.sidecar.decisions())[-1][2] == writing.source("shut_now")


# names that change


async def test_a_rename_through_the_sidecar_is_followed_at_once(
    chroma: int, tmp_path: Path
) -> None:
    (first := tmp_path / "a").mkdir()
    async with fronting(chroma, first, writes="allow") as front:
        assert (await front.ask("POST", front.one("open_docs", "/get"), {})).status == 200
        assert (
            await front.ask("PUT", front.one("open_docs"), {"new_name": "open_else"})
        ).status == 200
        await front.ask("POST", front.one("open_docs", "/get"), {})
        assert (await front.sidecar.decisions())[-1][2] == front.source("open_else")


async def test_a_rename_by_others_is_followed_after_thirty_seconds(front: Front) -> None:
    assert (await front.ask("POST", front.one("open_docs", "/get"), {})).status == 200
    front.direct("PUT", front.one("open_docs"), {"new_name": "shut_now"})
    front.ticking.ahead = 29
    assert (await front.ask("POST", front.one("open_docs", "/get"), {})).status == 200
    front.ticking.ahead = 31
    denied(await front.ask("POST", front.one("open_docs", "/get"), {}), "analysts-read")
    assert (await front.sidecar.decisions())[-1][2] == front.source("shut_now")


async def test_a_name_that_moved_is_judged_by_its_present_holder(front: Front) -> None:
    await front.ask("POST", front.one("open_docs", "/get"), {})
    # The closed one takes the open name: a policy follows the name, and the former holder loses it.
    front.direct("PUT", front.one("open_docs"), {"new_name": "shut_then"})
    front.direct("PUT", front.one("shut_docs"), {"new_name": "open_docs"})
    answered = await front.ask("GET", f"{front.names}/open_docs")
    assert answered.json["id"] == front.ids["shut_docs"]
    front.ticking.ahead = 31
    denied(await front.ask("POST", front.one("open_docs", "/get"), {}), "analysts-read")


async def test_a_recreated_collection_is_another_one(front: Front) -> None:
    old = front.ids["open_docs"]
    await front.ask("POST", f"{front.names}/{old}/get", {})
    front.direct("DELETE", f"{front.names}/open_docs")
    new = front.create("open_docs")
    assert new != old
    gone = await front.ask("POST", f"{front.names}/{old}/get", {})
    assert gone.status in (404, 500)
    assert (await front.ask("POST", f"{front.names}/{new}/get", {})).status == 200
    front.ticking.ahead = 31
    denied(await front.ask("POST", f"{front.names}/{old}/get", {}), "unresolved_source")


async def test_a_closed_name_stays_closed_however_often_it_is_recreated(front: Front) -> None:
    for _ in range(2):
        front.direct("DELETE", f"{front.names}/shut_docs")
        identity = front.create("shut_docs")
        denied(await front.ask("POST", f"{front.names}/{identity}/get", {}), "analysts-read")


async def test_concurrent_reads_and_renames_never_read_a_closed_collection(
    chroma: int, tmp_path: Path
) -> None:
    """One writer swaps two names through the sidecar while readers read by id: every response was
    allowed under a name that may be read."""
    names = policy(allowed_sources=("*open_*",), denied_sources=("*open_hidden*",))
    async with fronting(chroma, tmp_path, names, writes="allow") as front:
        identity = front.ids["open_docs"]
        stop = False

        async def read() -> int:
            count = 0
            while not stop:
                answered = await front.ask("POST", f"{front.names}/{identity}/get", {})
                assert answered.status in (200, 403)
                count += 1
            return count

        async def rename() -> None:
            for number in range(20):
                answered = await front.ask(
                    "PUT", f"{front.names}/{identity}", {"new_name": f"open_{number}"}
                )
                assert answered.status == 200
                check = await front.ask("POST", f"{front.names}/{identity}/get", {})
                assert check.status == 200
                by_id = {each["eid"]: each for each in await front.sidecar.records()}
                record = by_id[check.fields["x-sluice-event-id"]]
                name = record["pub"]["request"]["source_id"].rsplit("/", 1)[1]
                assert name == f"open_{number}", "a name from before the rename"

        readers = [asyncio.get_running_loop().create_task(read()) for _ in range(4)]
        await rename()
        stop = True
        assert sum(await asyncio.gather(*readers)) > 0


async def test_concurrent_requests_are_judged_separately(front: Front) -> None:
    async def ask(number: int) -> tuple[str, int, bytes]:
        name = "open_docs" if number % 2 else "shut_docs"
        answered = await front.ask(
            "POST", front.one(name, "/get"), {}, f"X-Sluice-Task: task-{number}"
        )
        return name, answered.status, answered.body

    for name, status, body in await asyncio.gather(*(ask(number) for number in range(60))):
        assert status == (200 if name == "open_docs" else 403)
        assert (b"text of open_docs" in body) == (name == "open_docs")
        assert b"text of shut" not in body
    tasks = [
        (record["pub"]["request"]["task_type"], record["pub"]["response"]["decision"])
        for record in await front.sidecar.records()
        if record["kind"] == "decision"
    ]
    assert sorted(tasks) == sorted(
        (f"task-{number}", "ALLOW" if number % 2 else "DENY") for number in range(60)
    )
