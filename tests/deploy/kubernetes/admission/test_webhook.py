"""The webhook's ports: what it answers to reviews, to hostile requests, and to probes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.kubernetes.admission import server
from deploy.kubernetes.admission.certificates import stored
from deploy.kubernetes.admission.review import Review
from deploy.kubernetes.admission.server import MAX_BODY, PATHS, SMALL, NamespaceFacts
from deploy.kubernetes.admission.vocabulary import Outcome, SkipReason, Verdict
from policies.ground.addresses import ListenAddress
from policies.ground.process import small_server
from tests.deploy.kubernetes.admission.reviews import encoded, review
from tests.deploy.kubernetes.admission.running_webhook import (
    PATCH,
    Webhook,
    certificate_files,
    patch_of,
    running_webhook,
    start,
)
from tests.support.waiting import until_async

RESPONSES = "sluice_injection_responses_total"


@pytest.fixture
async def webhook(tmp_path: Path) -> AsyncIterator[Webhook]:
    async with running_webhook(tmp_path) as running:
        yield running


def responses(outcome: Outcome, reason: SkipReason = SkipReason.none) -> str:
    return f'{RESPONSES}{{outcome="{outcome}",skip_reason="{reason}"}}'


async def test_a_pod_gets_its_patch_under_the_uid_of_its_review(webhook: Webhook) -> None:
    status, answer = await webhook.ask()
    assert status == 200
    assert answer["response"]["uid"] == review()["request"]["uid"]
    assert patch_of(answer) == list(PATCH)
    assert await webhook.metric(responses(Outcome.injected)) == 1
    assert await webhook.metric("sluice_injection_seconds_count") == 1


@pytest.mark.parametrize("path", PATHS)
async def test_the_path_carries_the_namespace_s_labels(webhook: Webhook, path: str) -> None:
    status, _ = await webhook.ask(path=f"{path}?timeout=5s")
    assert status == 200
    expected = NamespaceFacts("optional" in path, "restricted" in path)
    assert webhook.injector.facts == [expected]


async def test_a_refusal_reaches_the_pod_s_author(webhook: Webhook) -> None:
    webhook.injector.decide = lambda _review, _facts: Verdict(
        Outcome.refused, message="hostNetwork is set"
    )
    _, answer = await webhook.ask()
    assert answer["response"]["allowed"] is False
    assert answer["response"]["status"]["message"] == "hostNetwork is set"
    assert await webhook.metric(responses(Outcome.refused)) == 1


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"operation": "UPDATE"}, SkipReason.not_created),
        ({"subResource": "ephemeralcontainers"}, SkipReason.not_created),
        (
            {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
            SkipReason.not_a_pod,
        ),
    ],
)
async def test_a_review_of_anything_but_a_created_pod_is_admitted_unchanged(
    webhook: Webhook, changed: dict[str, Any], reason: SkipReason
) -> None:
    _, answer = await webhook.ask(encoded(review(**changed)))
    assert answer["response"] == {"uid": review()["request"]["uid"], "allowed": True}
    assert await webhook.metric(responses(Outcome.skipped, reason)) == 1
    assert not webhook.injector.facts


async def test_a_bug_is_answered_with_500_and_the_next_review_works(
    webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_review: Review, _facts: NamespaceFacts) -> Verdict:
        raise KeyError("spec")

    decide, webhook.injector.decide = webhook.injector.decide, broken
    status, answer = await webhook.ask()
    assert (status, answer["message"]) == (500, "internal error")
    assert "review failed" in caplog.text
    webhook.injector.decide = decide
    assert (await webhook.ask())[0] == 200
    assert await webhook.metric(responses(Outcome.failed)) == 1


BOMB = b'{"a":' + b"[" * 1_000_000
HOSTILE = {
    "an empty body": (b"", 400),
    "not JSON": (b"\x00" * 100, 400),
    "two megabytes that are not JSON": (b"{" * 2_000_000, 400),
    "a list that is a million levels deep": (BOMB, 400),
    "a wide list of small lists": (b"[" + b"[]," * 900_000 + b"[]]", 400),
    "a key two million times": (b"{" + b'"a":1,' * 400_000 + b'"a":1}', 400),
    "a number of a million digits": (b'{"apiVersion":' + b"9" * 1_000_000 + b"}", 400),
    "another version": (encoded({**review(), "apiVersion": "admission.k8s.io/v1beta1"}), 400),
    "more than the limit": (b" " * (MAX_BODY + 1), 413),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_review_is_refused_and_the_next_is_answered(
    webhook: Webhook, name: str
) -> None:
    raw, expected = HOSTILE[name]
    status, answer = await webhook.ask(raw)
    assert status == expected
    assert len(answer["message"]) < 400
    assert await webhook.metric(responses(Outcome.malformed)) == 1
    assert (await webhook.ask())[0] == 200


async def test_small_pods_are_answered_while_a_huge_one_is_read(webhook: Webhook) -> None:
    large = encoded(review(object={"kind": "Pod", "metadata": {"annotations": {"a": "b" * 2**21}}}))
    assert SMALL < len(large) < MAX_BODY
    answers = await asyncio.gather(webhook.ask(large), *(webhook.ask() for _ in range(20)))
    assert [status for status, _ in answers] == [200] * 21


async def test_a_compressed_body_is_refused_unread(webhook: Webhook) -> None:
    status, answer = await webhook.ask(b"\x1f\x8b" * 100, **{"Content-Encoding": "gzip"})
    assert (status, answer["message"]) == (400, "the body is compressed, which is not supported")


async def test_many_large_bodies_at_once_are_refused_and_use_little_memory(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_HELD", 2 * MAX_BODY)
    head = (
        b"POST /inject HTTP/1.1\r\nHost: w\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % MAX_BODY
    )
    held = [await webhook.raw() for _ in range(3)]
    for _, writer in held:
        writer.write(head + b"{")
    # Two hold their memory and wait for their bodies; the third can't be told from them by order.
    reads = [asyncio.create_task(reader.readline()) for reader, _ in held]
    done, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [b"HTTP/1.1 503 Service Unavailable\r\n"]
    for _, writer in held:
        writer.close()
    await asyncio.gather(*reads)
    # What they held is free again.
    assert (await webhook.ask(b" " * MAX_BODY))[0] == 400


async def test_a_body_that_does_not_arrive_is_refused_after_a_while(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BODY_SECONDS", 0.1)
    reader, writer = await webhook.raw()
    writer.write(b"POST /inject HTTP/1.1\r\nHost: w\r\nContent-Length: 10\r\n\r\n{")
    assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
    await reader.read()
    writer.close()


async def test_a_chunked_body_is_cut_off_at_the_limit(webhook: Webhook) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b" " * 65_536

    async with webhook.client.post(
        f"https://127.0.0.1:{webhook.reviews.port}/inject",
        data=endless(),
        ssl=False,
        headers={"Content-Type": "application/json"},
    ) as answer:
        assert answer.status == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/inject", 405), ("POST", "/", 404), ("POST", "/inject/enabled/", 404)],
)
async def test_other_requests_are_refused_with_their_status(
    webhook: Webhook, method: str, path: str, status: int
) -> None:
    url = f"https://127.0.0.1:{webhook.reviews.port}{path}"
    async with webhook.client.request(method, url, ssl=False) as answer:
        assert answer.status == status
        assert (await answer.json())["code"] == status


async def test_bytes_that_are_not_http_get_an_error_and_the_connection_ends(
    webhook: Webhook,
) -> None:
    reader, writer = await webhook.raw()
    writer.write(b"\x16\x03\x01 nothing\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.")
    writer.close()


async def test_a_connection_without_a_request_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_server, "FIRST_REQUEST_SECONDS", 0.1)
    async with running_webhook(tmp_path) as webhook:
        reader, writer = await webhook.raw()
        writer.write(b"POST /inject HTTP/1.1\r\nHost:")
        assert await reader.read() == b""
        writer.close()


async def test_silent_connections_do_not_keep_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_server, "MAX_CONNECTIONS", 8)
    async with running_webhook(tmp_path) as webhook:
        await webhook.ask()
        silent = [await webhook.raw() for _ in range(12)]
        # The connection in use was kept, and a new one is let in.
        assert (await webhook.ask())[0] == 200
        async with aiohttp.ClientSession() as another:
            url = f"https://127.0.0.1:{webhook.reviews.port}/inject"
            headers = {"Content-Type": "application/json"}
            data = encoded(review())
            async with another.post(url, data=data, headers=headers, ssl=False) as answer:
                assert answer.status == 200
        assert await silent[0][0].read() == b""
        for _, writer in silent:
            writer.close()


async def test_idle_connections_do_not_keep_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_server, "MAX_CONNECTIONS", 4)
    async with running_webhook(tmp_path) as webhook:
        raw = encoded(review())
        head = b"POST /inject HTTP/1.1\r\nHost: w\r\nContent-Length: %d\r\n\r\n" % len(raw)
        idle = [await webhook.raw() for _ in range(4)]
        for reader, writer in idle:
            writer.write(head + raw)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        assert (await webhook.ask())[0] == 200
        # The one that was used longest ago made room.
        assert b"patch" in await idle[0][0].read()
        for _, writer in idle:
            writer.close()


async def test_a_client_that_reads_no_answers_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_server, "UNREAD_SECONDS", 0.1)
    async with running_webhook(tmp_path) as webhook:
        # Answers that fill the buffers of both ends soon.
        long = ({"op": "add", "path": "/a", "value": "x" * 2_000_000},)
        webhook.injector.decide = lambda _review, _facts: Verdict(Outcome.injected, long)
        raw = encoded(review())
        head = b"POST /inject HTTP/1.1\r\nHost: w\r\nContent-Length: %d\r\n\r\n" % len(raw)
        reader, writer = await webhook.raw()
        transport = writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        for _ in range(10):
            writer.write(head + raw)

        async def open_connections() -> float:
            return await webhook.metric("sluice_webhook_connections")

        async def closed() -> bool:
            return not await open_connections()

        await until_async("the connection is open", open_connections)
        await until_async("the connection is closed", closed)
        writer.close()
        assert not reader.at_eof()


async def test_clients_without_a_handshake_block_no_other(webhook: Webhook) -> None:
    silent = [await asyncio.open_connection("127.0.0.1", webhook.reviews.port) for _ in range(100)]
    silent[0][1].write(b"POST /inject HTTP/1.1\r\n\r\n")
    assert (await webhook.ask())[0] == 200
    for _, writer in silent:
        writer.close()


async def test_health_and_readiness_need_no_certificate_of_the_caller(webhook: Webhook) -> None:
    assert await webhook.get("/health") == (200, '{"status":"ok"}')
    assert await webhook.get("/health/ready") == (200, '{"status":"ready"}')
    assert (await webhook.get("/inject"))[0] == 404
    left = await webhook.metric("sluice_webhook_certificate_expiry_seconds")
    assert 86_400 < left < 2 * 86_400


async def test_a_webhook_without_a_certificate_is_alive_and_not_ready(tmp_path: Path) -> None:
    starting = start(tmp_path)
    health = (await starting.next_ports()).health
    async with aiohttp.ClientSession(f"http://127.0.0.1:{health.port}") as client:
        async with client.get("/health") as answer:
            assert answer.status == 200
        async with client.get("/health/ready") as answer:
            assert answer.status == 503
            assert await answer.json() == {"status": "there is no certificate yet"}
        async with client.get("/metrics") as answer:
            # No sample, instead of one that would look like an expired certificate.
            assert "\nsluice_webhook_certificate_expiry_seconds" not in await answer.text()
    starting.stop.set()
    await starting.task


async def test_a_renewed_certificate_is_served_and_open_connections_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "POLL_SECONDS", 0.02)
    async with running_webhook(tmp_path) as webhook:
        first = await _served(webhook)
        await webhook.ask()
        certificate_files(tmp_path / "tls")

        async def renewed() -> bool:
            return await _served(webhook) != first

        await until_async("the new certificate is served", renewed)
        assert (await webhook.ask())[0] == 200
        # A key that does not match leaves the certificate in use, and is counted.
        second = await _served(webhook)
        (tmp_path / "tls" / "..data" / "tls.key").write_text("not a key")
        counted = 'sluice_webhook_certificate_failures_total{reason="unusable"}'
        await until_async("the failure is counted", lambda: webhook.metric(counted))
        assert await _served(webhook) == second


async def _served(webhook: Webhook) -> bytes | None:
    _, writer = await webhook.raw()
    tls = writer.get_extra_info("ssl_object")
    assert isinstance(tls, ssl.SSLObject)
    assert tls.version() == "TLSv1.3"
    found = tls.getpeercert(binary_form=True)
    writer.close()
    return found


async def test_open_reviews_are_answered_at_a_stop(tmp_path: Path) -> None:
    async with running_webhook(tmp_path, SLUICE_WEBHOOK_DRAIN_SECONDS="1") as webhook:
        # Half of a review is sent before the stop, the rest after it.
        raw = encoded(review())
        reader, writer = await webhook.raw()
        writer.write(b"POST /inject HTTP/1.1\r\nHost: w\r\nContent-Length: %d\r\n\r\n" % len(raw))
        writer.write(raw[:10])
        await webhook.ask()
        webhook.stop.set()

        async def stopping() -> bool:
            return (await webhook.get("/health/ready"))[0] == 503

        await until_async("it says that it stops", stopping)
        # A review that was sent here because its node does not know yet.
        assert (await webhook.ask())[0] == 200
        writer.write(raw[10:])
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Connection: close" in head
        writer.close()
        await webhook.task


async def test_a_port_that_is_taken_ends_the_process_with_its_setting(
    webhook: Webhook, tmp_path: Path
) -> None:
    taken = ListenAddress("127.0.0.1", webhook.health.port)
    with pytest.raises(Exception, match="SLUICE_WEBHOOK_HEALTH_LISTEN: can't listen"):
        async with running_webhook(tmp_path, SLUICE_WEBHOOK_HEALTH_LISTEN=str(taken)):
            pass
