"""Keys, paths, methods, request ids and headers on the sidecar's port (`CONTRACT.md`, Requests,
Responses)."""

import gc
import re
import tracemalloc
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from policies.ground.errors import MethodNotAllowed, SluiceError
from policies.ground.keys import KeysDiffer
from tests.sidecar.error_bodies import is_error, refused
from tests.sidecar.wire import GOOD, raw
from tests.support.fake_control_api import EVALUATE_KEY, READ_KEY, SIDECAR_KEY, fake_control_api
from tests.support.sidecar import EVALUATE, RunningSidecar, running_sidecar


@pytest.mark.parametrize("path", [EVALUATE, "/v1/", "/v1/nothing", "/v1/context/evaluate/batch"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_every_path_of_the_api_needs_a_key(
    sidecar: RunningSidecar, path: str, method: str
) -> None:
    await refused(sidecar, 401, method, path, key=None)
    await refused(sidecar, 401, method, path, key="")


async def test_refused_bodies_leave_no_memory_and_no_record(sidecar: RunningSidecar) -> None:
    async def flood(count: int) -> None:
        for number in range(count):
            name = b"%d" % number + b"x" * 5000  # each is new: what remembered it would grow
            for body in (b'["%b"]', b'{"agent_role": "%b', b'{"%b": 1}', b'{"agent_role": "%b"}'):
                answer = await sidecar.call("POST", EVALUATE, body % name)
                assert answer.status in (400, 422)

    await flood(5)
    tracemalloc.start()
    try:
        await flood(10)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 50_000, "a quarter of them would take as much"
    assert await sidecar.records() == []


@pytest.mark.parametrize(
    "key", ["slc_wrong", EVALUATE_KEY + "x", EVALUATE_KEY.lower(), "ÿ" * 53, READ_KEY, SIDECAR_KEY]
)
async def test_a_bad_key_or_scope_is_403_before_the_body_is_judged(
    sidecar: RunningSidecar, key: str
) -> None:
    told = await refused(sidecar, 403, body=b"{", key=key)
    assert key not in str(told)
    assert await sidecar.records() == []


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/V1/context/evaluate", "/nothing", "/health/", "//health", "/favicon.ico"]
)
async def test_an_unknown_path_outside_v1_is_404(tmp_path: Path, path: str) -> None:
    async with (
        fake_control_api() as control,
        running_sidecar(tmp_path, control, synced=False) as running,
    ):
        status, _, body = await raw(running, b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode())
        assert status == 404
        is_error(404, body)


async def test_an_unknown_path_under_v1_is_404_with_a_key_of_any_scope(
    sidecar: RunningSidecar,
) -> None:
    for path in ("/v1/nothing", EVALUATE + "/", EVALUATE + "%2f", "/v1//context/evaluate"):
        await refused(sidecar, 404, "POST", path, body=GOOD)
        await refused(sidecar, 404, "GET", path, key=READ_KEY)


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [
        (EVALUATE, "GET", "POST"),
        (EVALUATE, "PUT", "POST"),
        (EVALUATE, "OPTIONS", "POST"),
        ("/health", "POST", "GET, HEAD"),
        ("/health/ready", "DELETE", "GET, HEAD"),
        ("/metrics", "POST", "GET, HEAD"),
    ],
)
async def test_another_method_is_405_and_lists_the_allowed_ones(
    sidecar: RunningSidecar, path: str, method: str, allowed: str
) -> None:
    await refused(sidecar, 405, method, path)
    answer = await sidecar.call(method, path)
    assert answer.headers["Allow"] == allowed


@pytest.mark.parametrize(
    ("path", "fields", "fault"),
    [
        ("/health", b"", MethodNotAllowed),
        (EVALUATE, b"X-API-Key: a\r\nAuthorization: Bearer b\r\n", KeysDiffer),
    ],
)
async def test_a_request_that_is_refused_again_and_again_is_not_kept(
    sidecar: RunningSidecar, path: str, fields: bytes, fault: type[SluiceError]
) -> None:
    sent = b"POST %b HTTP/1.1\r\nHost: a\r\n%b\r\n" % (path.encode(), fields)
    for _ in range(3):
        await raw(sidecar, sent)
    gc.collect()
    assert [each for each in gc.get_objects() if isinstance(each, fault)] == []


async def test_a_response_has_the_headers_of_the_contract(sidecar: RunningSidecar) -> None:
    answer = await sidecar.call("POST", EVALUATE, GOOD)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Server"] == "sluice"
    assert parsedate_to_datetime(answer.headers["Date"]).tzname() == "UTC"
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert len([name for name in answer.headers if name == "Content-Length"]) == 1


@pytest.mark.parametrize("given", ["a", "3fa85f64-5717-4562-b3fc-2c963f66afa6", "x" * 128, "~!"])
async def test_a_request_id_is_echoed(sidecar: RunningSidecar, given: str) -> None:
    for path in (EVALUATE, "/health", "/nothing"):
        answer = await sidecar.call("POST", path, GOOD, headers={"X-Request-ID": given})
        assert answer.headers["X-Request-ID"] == given


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "é", "a\tb"])
async def test_a_request_id_that_could_harm_a_log_is_replaced(
    sidecar: RunningSidecar, given: str
) -> None:
    answer = await sidecar.call("POST", EVALUATE, GOOD, headers={"X-Request-ID": given})
    assert re.fullmatch(r"[0-9a-f]{8}-\d+", answer.headers["X-Request-ID"])
    another = await sidecar.call("POST", EVALUATE, GOOD)
    assert another.headers["X-Request-ID"] != answer.headers["X-Request-ID"]


async def test_an_internal_error_is_500_with_only_the_request_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret of the house")

    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control) as running:
            monkeypatch.setattr(running.parts.enforcer, "denial_of_everything", broken)
            answer = await running.call("POST", EVALUATE, GOOD, headers={"X-Request-ID": "r-17"})
            assert answer.status == 500
            assert "r-17" in is_error(500, answer.body)["message"]
            assert "secret" not in answer.text()
            assert [vars(each).get("request_id") for each in caplog.records if each.exc_info] == [
                "r-17"
            ]
            assert "secret of the house" in caplog.text
