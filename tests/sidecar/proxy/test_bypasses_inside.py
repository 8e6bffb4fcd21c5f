"""The bypasses of `proxy/RULES.md` that aren't about one request's head: a rewritten path, a
decision that fails, a body that others would read differently."""

import gzip
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies.ground.addresses import ListenAddress
from policies.ground.core_form import CORE_FORM
from policies.sets.policy_set import PolicySet
from sidecar.policy_cache.policy_view import FetchFailed, MissingDocument
from sidecar.proxy.limits import LIMITS
from tests.sidecar.proxy.bypass_setups import alone
from tests.sidecar.proxy.bypasses import READER, get
from tests.sidecar.proxy.raw_client import ask, one
from tests.support.ports import free_port
from tests.support.proxy import ProxySetup, Sidecar, policy, sidecar, source
from tests.support.scripted_source import data_source

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])


@pytest.fixture(params=["/kb", "/kb/v1", "/k%C3%A9"])
async def below(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[ProxySetup, str]]:
    """A source below a path, and another beside it."""
    listen = ListenAddress("127.0.0.1", free_port())
    reader = policy(allowed_sources=("rest://kb/info/*", "rest://crm/*"))
    async with data_source() as kb, data_source() as crm, sidecar(tmp_path, reader) as made:
        sources = (
            source(kb.port, listen=listen, path=request.param),
            source(crm.port, alias="crm", listen=listen, path="/crm"),
        )
        proxy = made.proxy(sources)
        await proxy.start()
        try:
            yield ProxySetup(listen.port, kb, made), request.param
        finally:
            await proxy.close(1)


@pytest.mark.parametrize("rest", [
    "%2fadmin", "%2Finfo/a", "/%2e%2e/crm/a", "/../crm/a", "/info/../../crm/a", "//admin",
    "/;/admin", "/info/%2e%2e/admin", "/info/..;/admin", "%2f..%2fcrm/a", "/info%2fa", "?/info/a",
    "/./info/a", "%3F/info/a", "#/info/a", "/%252e%252e/admin", "x/info/a", "%00/info/a", "/.",
    "\\info\\a",
])  # fmt: skip
async def test_row_11_the_path_without_its_prefix_is_judged(
    below: tuple[ProxySetup, str], rest: str
) -> None:
    """Traefik GHSA-6jwx-7vp4-9847."""
    setup, prefix = below
    answered = await ask(setup.port, get(prefix + rest))
    assert answered.status in (400, 403)
    assert setup.upstream.begun == []
    assert [each[0] for each in await setup.sidecar.decisions()] == ["DENY"]


async def test_row_11_the_prefix_may_be_spelled_in_any_way(below: tuple[ProxySetup, str]) -> None:
    setup, prefix = below
    escaped = "".join(
        each if each in "/%" else f"%{ord(each):02X}" for each in prefix.replace("%C3%A9", "")
    )
    escaped += "%c3%a9" if "%C3" in prefix else ""
    for spelled in (prefix, escaped):
        assert (await ask(setup.port, get(f"{spelled}/info/a?q"))).status == 200
        assert (await ask(setup.port, get(f"{spelled}/admin"))).status == 403
        assert (await ask(setup.port, get(spelled))).status == 403
    assert setup.upstream.targets == ["/info/a?q"] * 2


def _raises(error: BaseException) -> Callable[..., Any]:
    def broken(*_: Any, **__: Any) -> Any:
        raise error

    return broken


def _check(made: Sidecar, patched: pytest.MonkeyPatch) -> None:
    patched.setattr("policies.sets.role.Role.clauses", property(_raises(ZeroDivisionError())))


def _facts(made: Sidecar, patched: pytest.MonkeyPatch) -> None:
    _documents(made, patched, _raises(KeyError("junk")))


def _bundle(made: Sidecar, patched: pytest.MonkeyPatch) -> None:
    _documents(made, patched, _raises(MissingDocument("role:analyst")))
    patched.setattr(made.enforcer.policies.document_fetcher, "fetch", _brings_nothing)


def _documents(made: Sidecar, patched: pytest.MonkeyPatch, fetch: Callable[..., Any]) -> None:
    """Has the policy set get its documents from `fetch`."""
    policies = replace(made.enforcer.policies, policy_set=PolicySet(fetch))
    patched.setattr(made.enforcer, "policies", policies)
    patched.setattr(made.enforcer, "preview", replace(made.enforcer.preview, policies=policies))


async def _brings_nothing(_names: object) -> None:
    raise FetchFailed("nobody answers")


def _stale(made: Sidecar, patched: pytest.MonkeyPatch) -> None:
    made.enforcer.policies.freshness.expire("nobody confirms it")


def _key(made: Sidecar, patched: pytest.MonkeyPatch) -> None:
    patched.setattr("sidecar.live_keys.LiveKeys.find", lambda *_: None)


def _junk(made: Sidecar, patched: pytest.MonkeyPatch) -> None:
    patched.setattr("sidecar.enforce.evaluate", lambda *_: None)


FAILURES = {
    "a check raises": (_check, "evaluation_error"),
    "facts can't be gathered": (_facts, "evaluation_error"),
    "the policy set can't be had": (_bundle, "evaluation_error"),
    "the policy set is old": (_stale, "policy_set_stale"),
    "the key is gone": (_key, "key_not_valid"),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("target", ["/info/a", "/admin"])
async def test_where_nothing_can_be_judged_nothing_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, target: str
) -> None:
    """Row 16 (Envoy's `failure_mode_allow`): there is no setting that opens it."""
    fails, by = FAILURES[name]
    async with alone(tmp_path, READER) as setup:
        assert (await ask(setup.port, get("/info/first"))).status == 200
        setup.upstream.begun.clear()
        fails(setup.sidecar, monkeypatch)
        answered = await ask(setup.port, get(target))
        assert answered.status == (503 if by == "policy_set_stale" else 403)
        assert setup.upstream.begun == []
        assert (await setup.sidecar.decisions())[-1][:2] == ("DENY", by)


@pytest.mark.skipif(
    CORE_FORM == "compiled",
    reason="compiled functions are bound to each other, and can't be replaced",
)
async def test_row_16_a_judgement_without_a_verdict_allows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with alone(tmp_path, READER) as setup:
        _junk(setup.sidecar, monkeypatch)
        answered = await ask(setup.port, get("/info/a"))
        assert answered.status in (403, 500)
        assert setup.upstream.begun == []


QUERY = "/collections/open/points/query"


def query(body: bytes, *fields: str, length: int | None = None) -> bytes:
    lines = [
        f"POST {QUERY} HTTP/1.1", "Host: kb.test", "Content-Type: application/json",
        f"Content-Length: {len(body) if length is None else length}", *fields,
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.fixture
async def searched(tmp_path: Path) -> AsyncIterator[ProxySetup]:
    async with alone(tmp_path, policy(), kind="qdrant") as setup:
        yield setup


async def _unreadable(setup: ProxySetup, *data: bytes) -> None:
    for each in data:
        # Its sending side stays open: of an agent that ends it in the middle of a body that is read
        # away, it is unknown whether it still listens.
        answered = await one(setup.port, each)
        assert answered.status == 400, answered.raw[:300]
        assert setup.upstream.begun == []
        assert (await setup.sidecar.decisions())[-1][:2] == ("DENY", "unreadable_request")


async def test_a_body_that_is_not_judged_whole_is_not_forwarded(searched: ProxySetup) -> None:
    """Row 17 (Envoy's `allow_partial_message`)."""
    over = b'{"query":[0.1],"x":"' + b"x" * LIMITS.inspected_bytes + b'"}'
    await _unreadable(
        searched,
        query(b'{"query":[0.1]'),
        query(over),
        b"\r\n".join(
            (
                f"POST {QUERY} HTTP/1.1".encode(), b"Host: kb", b"Transfer-Encoding: chunked", b"",
                b"%x" % len(over), over, b"0", b"", b"",
            )
        ),
    )  # fmt: skip


@pytest.mark.parametrize("length", [16, 20, 2000])
async def test_row_17_a_body_that_breaks_off_is_not_forwarded(
    searched: ProxySetup, length: int
) -> None:
    for body in (b"", b'{"query":[0.1]}'):
        await ask(searched.port, query(body, length=length))
        assert searched.upstream.begun == []


async def test_a_body_that_is_encoded_is_not_forwarded(searched: ProxySetup) -> None:
    """Row 18: whatever the coding is called, and also where it is stated twice."""
    packed = gzip.compress(b'{"query":[0.1]}')
    plain = b'{"query":[0.1]}'
    await _unreadable(
        searched,
        query(packed, "Content-Encoding: gzip"),
        query(packed, "Content-Encoding: gzip, gzip"),
        query(plain, "Content-Encoding: gzip"),
        query(plain, "Content-Encoding: identity, identity"),
        query(plain, "Content-Encoding: unknown"),
        query(plain, "Content-Encoding: identity", "content-encoding: gzip"),
        query(plain, "Content-Encoding:"),
        query(packed),
    )


async def test_a_body_of_another_type_or_with_a_key_twice_is_not_forwarded(
    searched: ProxySetup,
) -> None:
    plain = b'{"query":[0.1]}'
    retyped = query(plain).replace(b"application/json", b"%b")
    await _unreadable(
        searched,
        *(retyped.replace(b"%b", media) for media in (
            b"text/plain", b"application/x-ndjson", b"application/json; charset=utf-16",
            b"application/json, text/plain", b"application/x-www-form-urlencoded",
        )),
        query(b'{"query":[0.1],"query":[0.2]}'),
        query(b'{"query":[0.1],"filter":{"must":[],"m\\u0075st":[]}}'),
        query(b'[{"query":[0.1]}]'),
        query(b'{"query":[0.1]} {"x":1}'),
        query(b"\xef\xbb\xbf" + plain),
        query(plain.decode().encode("utf-16")),
    )  # fmt: skip
