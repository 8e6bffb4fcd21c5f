"""Whatever a sidecar, a network or an attacker does instead of deciding: `Unavailable`, by the one
deadline, and nothing that is guarded runs."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import pytest

from sluice_guard import Denied, Guard, Unavailable
from tests.deploy.sdk.python.scripted_server import (
    ALLOW,
    DENY,
    EVENT,
    Script,
    Server,
    response,
    says,
    serving,
)
from tests.support.certificates import authority
from tests.support.ports import free_port

KEY = "slc_" + "s3cret" * 8


def guard_at(url: str, timeout: float = 30) -> Guard:
    return Guard(url, KEY, "agt", "support", timeout=timeout)


async def refused(url: str, *, timeout: float = 30, match: str | None = None) -> None:
    """A guarded function, a coroutine and a generator run nothing, each with its own guard."""
    ran: list[str] = []

    def function() -> None:
        ran.append("function")

    async def coroutine() -> None:
        ran.append("coroutine")

    def generator() -> Iterator[None]:
        ran.append("generator")
        yield

    calls: list[Callable[[Guard], Awaitable[object]]] = [
        lambda guard: asyncio.to_thread(guard.source("s")(function)),
        lambda guard: guard.source("s")(coroutine)(),
        lambda guard: asyncio.to_thread(list, guard.source("s")(generator)()),
    ]
    for call in calls:
        async with guard_at(url, timeout) as guard:
            with pytest.raises(Unavailable, match=match) as caught:
                await call(guard)
            shows_no_key(caught.value)
    assert ran == []


def shows_no_key(error: BaseException) -> None:
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    assert KEY not in "".join(shown.format())
    assert KEY not in repr(error)
    assert error.__context__ is None
    assert error.__cause__ is None


def hang(_connection: socket.socket, ended: threading.Event) -> None:
    ended.wait(20)


def drip(connection: socket.socket, ended: threading.Event) -> None:
    """An ALLOW, byte by byte: no read takes long, all of them do."""
    for byte in response(ALLOW):
        connection.sendall(bytes((byte,)))
        # expires on purpose
        if ended.wait(0.05):
            return


def interim(connection: socket.socket, ended: threading.Event) -> None:
    """Interim answers without end."""
    # expires on purpose
    while not ended.wait(0.02):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


def flood(connection: socket.socket, ended: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    while not ended.is_set():
        connection.sendall(b" " * 65536)


def says_last(answer: bytes) -> Script:
    """Sends it, and ends the connection."""

    def script(connection: socket.socket, _ended: threading.Event) -> None:
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)

    return script


def drop(connection: socket.socket, _ended: threading.Event) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def cut(connection: socket.socket, _ended: threading.Event) -> None:
    connection.sendall(response(ALLOW)[:-1])
    connection.shutdown(socket.SHUT_RDWR)


def asked_then(number: int) -> Script:
    """Sends the first asker, this process's main thread, a signal, and then an ALLOW."""
    asked: list[int] = []

    def script(connection: socket.socket, ended: threading.Event) -> None:
        asked.append(1)
        if len(asked) == 1:
            signal.pthread_kill(threading.main_thread().ident or 0, number)
            # expires on purpose
            ended.wait(0.2)
        connection.sendall(response(ALLOW if len(asked) == 1 else DENY))

    return script


def redirect(connection: socket.socket, _ended: threading.Event) -> None:
    port = connection.getsockname()[1]
    head = f"Location: http://127.0.0.1:{port}/other\r\nContent-Type: application/json"
    connection.sendall(response(ALLOW, "307 Temporary Redirect", headers=head))


SLOW: dict[str, Script] = {"hangs": hang, "drips": drip, "only interim answers": interim}
BROKEN: dict[str, Script] = {"floods": flood, "drops": drop, "cut": cut, "redirect": redirect}
ANSWERS: dict[str, bytes] = {
    "lower case": response(ALLOW | {"decision": "allow"}),
    "padded": response(ALLOW | {"decision": "ALLOW "}),
    "true": response(ALLOW | {"decision": True}),
    "AuthZEN's": response({"decision": True, "context": {"event_id": EVENT}}),
    "a list": response([ALLOW]),
    "a text": response("ALLOW"),
    "null": response(None),
    "empty": response(b""),
    "no event": response({name: ALLOW[name] for name in ALLOW if name != "event_id"}),
    "an empty event": response(ALLOW | {"event_id": ""}),
    "a number as event": response(ALLOW | {"event_id": 1}),
    "no policy": response(ALLOW | {"policy_name": None}),
    "no reason": response({name: ALLOW[name] for name in ALLOW if name != "reason"}),
    "two decisions": response(b'{"decision": "DENY", ' + json.dumps(ALLOW).encode()[1:]),
    "more after it": response(json.dumps(ALLOW).encode() + b"{}"),
    "deep": response(b"[" * 20000 + b"]" * 20000),
    "no UTF-8": response(b"\xff" + json.dumps(ALLOW).encode()),
    "HTML": response(b"<html>ALLOW</html>", headers="Content-Type: text/html"),
    "JSON as HTML": response(ALLOW, headers="Content-Type: text/html"),
    "no type": response(ALLOW, headers="X-Other: 1"),
    "two types": response(
        ALLOW, headers="Content-Type: application/json\r\nContent-Type: text/html"
    ),
    "a header that differs": response(
        ALLOW, headers="Content-Type: application/json\r\nX-Sluice-Decision: DENY"
    ),
    "an event that differs": response(
        ALLOW, headers="Content-Type: application/json\r\nX-Sluice-Event-Id: another"
    ),
    "201": response(ALLOW, "201 Created"),
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "101": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "401": response(ALLOW, "401 Unauthorized"),
    "403 without a body": response(b"", "403 Forbidden"),
    "500": response(ALLOW, "500 Internal Server Error"),
    "503": response({"error": "x", "message": "no policy set", "code": 503}, "503 Unavailable"),
    "503 of an outage": response(
        {"error": "x", "message": "stale", "code": 503, "decision": ALLOW}, "503 Unavailable"
    ),
    "two answers": response(DENY) + response(ALLOW),
    "no HTTP": b"ALLOW\r\n\r\n",
    "HTTP/0.9": json.dumps(ALLOW).encode(),
    "two lengths": response(ALLOW, headers="Content-Type: application/json\r\nContent-Length: 1"),
    "length and chunks": response(
        ALLOW, headers="Content-Type: application/json\r\nTransfer-Encoding: chunked"
    ),
    "a huge head": response(ALLOW, headers="X-Padding: " + "x" * 100_000),
    "a huge body": response(ALLOW | {"reason": "x" * 100_000}),
}


@pytest.mark.parametrize("how", SLOW)
async def test_the_deadline_covers_the_whole_check(how: str) -> None:
    with serving(SLOW[how]) as server:
        # With a time-out for each read, those that drip would get their ALLOW through.
        # expires on purpose
        await refused(server.url, timeout=0.5, match=r"within 0\.5 s")


@pytest.mark.parametrize("how", BROKEN)
async def test_a_broken_answer_is_no_decision(how: str) -> None:
    with serving(BROKEN[how]) as server:
        await refused(server.url)
        # Neither a redirect nor a failure leads to another request.
        assert len(server.requests) == 3


@pytest.mark.parametrize("form", ANSWERS)
async def test_nothing_but_a_decision_is_taken_for_one(form: str) -> None:
    with serving(says_last(ANSWERS[form])) as server:
        await refused(server.url)
        assert len(server.requests) == 3


async def test_a_deny_with_status_200_denies() -> None:
    with serving(says(response(DENY))) as server:
        async with guard_at(server.url) as guard:
            with pytest.raises(Denied) as caught:
                guard.source("s")(len)([])
            assert not await guard.acheck("s")
        assert caught.value.event_id == EVENT


async def test_a_port_without_a_listener_is_unavailable() -> None:
    await refused(f"http://127.0.0.1:{free_port()}", match="no sidecar listens")


async def test_an_unknown_host_name_is_unavailable() -> None:
    await refused("http://sidecar.invalid", match="no sidecar listens")


async def test_a_peer_that_takes_no_data() -> None:
    """The request is larger than what the socket's buffers hold."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with guard_at(url, 0.5) as guard:
            query = "x" * 20_000_000
            with pytest.raises(Unavailable, match="within"):
                guard.check("s", query=query)
            with pytest.raises(Unavailable, match="within"):
                await guard.acheck("s", query=query)


async def test_a_peer_without_tls_is_unavailable() -> None:
    with serving(says(response(ALLOW))) as server:
        # expires on purpose
        await refused(server.url.replace("http:", "https:"), timeout=0.5)
        assert server.requests == []


async def test_only_a_peer_with_a_verified_certificate_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, other = authority("guard"), authority("guard-other")
    # A client that reads the environment would trust it.
    monkeypatch.setenv("SSL_CERT_FILE", str(own.path))
    with serving(says(response(ALLOW)), tls=own.server("127.0.0.1")) as server:
        for tls in (None, other.client()):
            async with Guard(server.url, KEY, "agt", "support", timeout=30, tls=tls) as guard:
                with pytest.raises(Unavailable, match="no TLS with the sidecar"):
                    guard.check("s")
                with pytest.raises(Unavailable, match="no TLS with the sidecar"):
                    await guard.acheck("s")
        assert server.requests == []
        async with Guard(server.url, KEY, "agt", "support", timeout=30, tls=own.client()) as guard:
            for _ in range(3):
                assert guard.check("s")
                assert await guard.acheck("s")
        assert len(server.requests) == 6
    with serving(says(response(ALLOW)), tls=own.server("elsewhere.example")) as server:
        async with Guard(server.url, KEY, "agt", "support", timeout=30, tls=own.client()) as guard:
            with pytest.raises(Unavailable, match="no TLS with the sidecar"):
                guard.check("s")
        assert server.requests == []


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(says(response(DENY))) as own, serving(says(response(ALLOW))) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        async with guard_at(own.url) as guard:
            assert not guard.check("s")
            assert not await guard.acheck("s")
        assert (len(own.requests), len(proxy.requests)) == (2, 0)


async def test_no_check_is_repeated_or_cached() -> None:
    answers = [says(response(each)) for each in (ALLOW, DENY, ALLOW, DENY)]
    with serving(*answers) as server:
        async with guard_at(server.url) as guard:
            assert [bool(guard.check("s")) for _ in range(2)] == [True, False]
            assert [bool(await guard.acheck("s")) for _ in range(2)] == [True, False]
        assert len(server.requests) == 4


@pytest.mark.parametrize("way", ["check", "acheck"])
async def test_a_connection_that_ended_is_not_used_again(way: str) -> None:
    """A sidecar that restarts closes what is idle; the next check opens another connection."""
    closed = threading.Event()

    def closing(connection: socket.socket, _ended: threading.Event) -> None:
        connection.sendall(response(ALLOW))
        connection.shutdown(socket.SHUT_RDWR)
        closed.set()

    with serving(closing) as server:
        async with guard_at(server.url) as guard:
            for _ in range(3):
                closed.clear()
                assert guard.check("s") if way == "check" else await guard.acheck("s")
                closed.wait(10)
        assert server.connections == 3


@pytest.mark.parametrize("way", ["check", "acheck"])
@pytest.mark.parametrize("late", [response(ALLOW), b"HTTP/1.1 200"])
async def test_unrequested_data_answers_no_later_check(late: bytes, way: str) -> None:
    """An ALLOW on an idle connection is not the answer to the next question."""
    idle, sent = threading.Event(), threading.Event()

    def twice(connection: socket.socket, _ended: threading.Event) -> None:
        connection.sendall(response(DENY))
        idle.wait(30)
        connection.sendall(late)
        sent.set()

    with serving(twice, says(response(DENY))) as server:
        async with guard_at(server.url) as guard:
            for _ in range(2):
                decision = guard.check("s") if way == "check" else await guard.acheck("s")
                assert not decision
                idle.set()
                assert await asyncio.to_thread(sent.wait, 30)
        assert server.connections == 2


async def test_a_cancelled_check_spoils_no_later_one() -> None:
    cancelled, answered = threading.Event(), threading.Event()

    def late(connection: socket.socket, _ended: threading.Event) -> None:
        cancelled.wait(30)
        with suppress(OSError):  # the guard may have closed the connection
            connection.sendall(response(ALLOW))
        answered.set()

    ran: list[str] = []
    with serving(late, says(response(DENY))) as server:
        async with guard_at(server.url) as guard:

            @guard.source("s")
            async def body() -> None:
                ran.append("body")

            with pytest.raises(asyncio.TimeoutError):
                # expires on purpose
                await asyncio.wait_for(body(), 0.1)
            cancelled.set()
            assert await asyncio.to_thread(answered.wait, 30)
            with pytest.raises(Denied):
                await body()
    assert ran == []


async def test_a_task_cancelled_at_any_await_does_not_run_the_function() -> None:
    """Cancelled at every turn of the event loop from the start to the answer."""
    ran: list[int] = []
    with serving(says(response(DENY))) as server:
        async with guard_at(server.url) as guard:

            @guard.source("s")
            async def body() -> None:
                ran.append(1)

            for turns in range(40):
                task = asyncio.get_running_loop().create_task(body())
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises((asyncio.CancelledError, Denied)):
                    await task
            assert not await guard.acheck("s")
    assert ran == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
def test_an_error_before_the_check_does_not_run_the_function(error: type[BaseException]) -> None:
    ran: list[int] = []

    def failing(*_: object) -> str:
        raise error

    with serving(says(response(ALLOW))) as server:
        with guard_at(server.url) as guard, pytest.raises(error):
            guard.source(failing)(ran.append)(1)
        assert server.requests == []
    assert ran == []


def test_a_signal_during_the_check_does_not_run_the_function() -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    ran: list[int] = []
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with serving(asked_then(signal.SIGUSR1)) as server, guard_at(server.url) as guard:
            with pytest.raises(Interrupted):
                guard.source("s")(ran.append)(1)
            # The answer comes all the same, on a connection that is closed.
            assert not guard.check("s")
            assert server.connections == 2
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ran == []


async def test_a_closed_guard_allows_nothing() -> None:
    with serving(says(response(ALLOW))) as server:
        guard = guard_at(server.url)
        await guard.aclose()
        with pytest.raises(Unavailable, match="closed"):
            guard.check("s")
        with pytest.raises(Unavailable, match="closed"):
            await guard.acheck("s")
        assert server.requests == []


async def test_the_key_appears_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    def of(server: Server) -> Guard:
        return guard_at(server.url)

    caplog.set_level(logging.DEBUG)
    with serving(says(response(ALLOW))) as server:
        async with of(server) as guard:
            assert guard.check("s")
            assert await guard.acheck("s")
            assert KEY.encode() in server.requests[0]
            for shown in (repr(guard), str(guard), f"{guard!r}"):
                assert KEY not in shown
    assert KEY not in caplog.text


@pytest.mark.parametrize("key", ["", "a b", "a\r\nX-Other: 1", "ä", "a\x00"])
def test_an_impossible_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ValueError, match="the key") as caught:
        Guard("http://127.0.0.1:1", key, "a", "r")
    assert not key or key not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:8710", "ftp://h", "http://", "http://u:p@h", "http://h?a=b", "http://h#f"],
)
def test_an_impossible_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="the URL"):
        Guard(url, KEY, "a", "r")
