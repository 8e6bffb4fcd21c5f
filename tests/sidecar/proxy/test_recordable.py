"""Whatever an agent writes, its denial is recorded in a form that the control API accepts. A record
that it can't read would block all that wait behind it (`proxy/RULES.md`, Bypasses)."""

from hashlib import sha256
from pathlib import Path

import pytest

from policies.ground.addresses import ListenAddress
from policies.statement import Look
from sidecar.http.attribution import Attribution
from sidecar.protocols.protocol import SourceRef
from sidecar.proxy.pipeline.authorizer import UNREADABLE, Authorizer, Denied, Refused
from sidecar.proxy.pipeline.statement_reads import StatementReads
from tests.sidecar.proxy.raw_client import ask, get
from tests.support.ports import free_port
from tests.support.proxy import policy, proxy_setup, sidecar, source

SOMEBODY = Attribution("somebody", None, None, None)
LONG = "/" + "a" * 400


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", [LONG, "/%C2%85", "/" + "%C3%A9" * 90])
async def test_a_denied_write_to_an_unrecordable_name_is_recorded_under_its_source(
    tmp_path: Path, method: str, path: str
) -> None:
    async with proxy_setup(tmp_path, policy()) as setup:
        found = await setup.ask(
            f"{method} {path} HTTP/1.1\r\nHost: kb\r\nContent-Length: 0\r\n\r\n".encode()
        )
        assert found.status in (400, 403)
        [(decision, name, named)] = await setup.sidecar.decisions()
        assert decision == "DENY"
        assert name in ("write_denied", UNREADABLE)
        assert named == "rest://kb"
        assert setup.upstream.begun == []


async def test_the_path_of_an_unreadable_request_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with proxy_setup(tmp_path, policy()) as setup:
        found = await setup.ask(get("/a/../b?key=secret"))
        assert found.status == 400
        [record] = await setup.sidecar.records()
    [line] = [each for each in caplog.messages if "unreadable" in each]
    assert line == f"event `{record['eid']}` is an unreadable request: GET `/a/../b`"
    # Not `/a`: the commitment is base64, and may hold it.
    assert "/../b" not in str(record)


async def test_a_request_to_the_longest_possible_host_is_denied_and_recorded(
    tmp_path: Path,
) -> None:
    host = ".".join(["a" * 61] * 4) + ".abcde"
    listen = ListenAddress("127.0.0.1", free_port())
    async with sidecar(tmp_path) as made:
        sources = (
            source(1, listen=listen, hosts=("kb.test",)),
            source(2, alias="b", listen=listen, hosts=("b.test",)),
        )
        proxy = made.proxy(sources)
        await proxy.start()
        try:
            found = await ask(listen.port, get("/a", host=f"{host}:65535"))
        finally:
            await proxy.close(1)
        assert found.status == 403
        [(decision, name, _)] = await made.decisions()
        assert (decision, name) == ("DENY", "unknown_destination")


@pytest.mark.parametrize("reason", ["x" * 200_000, "a lone surrogate: \ud800", "é" * 100_000])
async def test_a_reason_that_quotes_the_request(tmp_path: Path, reason: str) -> None:
    async with sidecar(tmp_path) as made:
        judge = Authorizer("rest", SourceRef("rest://kb", "low"), made.agent, made.enforcer)
        denied = await judge.refuse(Refused(400, UNREADABLE, reason, SOMEBODY))
        assert denied.decision.reason.startswith(reason[:10])
        assert [each[:2] for each in await made.decisions()] == [("DENY", UNREADABLE)]


@pytest.mark.deep(
    stands_in="tests/policies/trail/test_record.py::test_an_event_shows_the_statement_that_reads_its_source"
)
async def test_every_record_of_a_statement_has_its_mark(tmp_path: Path) -> None:
    tickets, staff = (SourceRef(f"postgres://crm/app/public/{name}", "low") for name in "ts")
    whole, raw = SourceRef("postgres://crm", "low"), b"SELECT 1 FROM t JOIN s WHERE a = $1 -- \xff"
    looks: dict[SourceRef, Look] = {tickets: "bind"}
    reads = StatementReads.of(
        raw, "id-1", fingerprint="50fde20626009aba", parameters=("x", None), looks=looks
    )
    async with sidecar(tmp_path, policy(denied_sources=("*/s",))) as made:
        judge = Authorizer("postgres", whole, made.agent, made.enforcer)
        await judge.allow([tickets], SOMEBODY, statement=reads)
        looks[staff] = "execute"
        with pytest.raises(Denied):
            await judge.allow([tickets, staff], SOMEBODY, statement=reads)
        with pytest.raises(Denied):
            await judge.reauthorize([staff], SOMEBODY, statement=reads)
        unread = StatementReads.of(b"SELEC", "id-2", looks={})
        await judge.refuse(Refused(400, UNREADABLE, "no SQL", SOMEBODY), statement=unread)
        await judge.allow([tickets], SOMEBODY)
        payloads = await made.payloads()
    found = [
        (each["core"]["pub"].get("statement"), {p: v for p, (_, v) in each["open"].items()})
        for each in payloads
    ]
    mark = {"fingerprint": "50fde20626009aba", "id": "id-1"}
    assert [each for each, _ in found] == [
        {**mark, "look": "bind"},
        {**mark, "look": "execute"},
        {**mark, "look": "execute"},
        {"id": "id-2"},
        None,
    ]
    texts = {"query": raw.decode(errors="replace"), "parameters": '["x",null]'}
    opened = {"user_id": "somebody", "statement_digest": sha256(raw).hexdigest(), **texts}
    assert [each for _, each in found[:3]] == [opened] * 3
    assert found[3][1].keys() == {"user_id", "query", "statement_digest"}
    assert found[4][1] == {"user_id": "somebody"}
