"""Kubernetes Events about pods, and what keeps them from holding up reviews or filling memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deploy.kubernetes.admission import kubernetes
from deploy.kubernetes.admission.kubernetes import EventReason
from deploy.kubernetes.admission.review import parse
from deploy.kubernetes.admission.server import event_of
from deploy.kubernetes.admission.vocabulary import Outcome, SkipReason, Verdict
from tests.deploy.kubernetes.admission.fake_api_server import HANG, FakeApiServer, fake_api_server
from tests.deploy.kubernetes.admission.reviews import encoded, review
from tests.deploy.kubernetes.admission.running_webhook import Webhook, running_webhook
from tests.support.waiting import until_async

OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "cart-5d9",
    "uid": "8f3c2f0e-0000-4000-8000-000000000000",
    "controller": True,
}
COUNTER = "sluice_webhook_events_total"


def owned(*owners: Any, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"generateName": "cart-", "ownerReferences": list(owners), **metadata}}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[FakeApiServer]:
    async with fake_api_server(tmp_path) as running:
        yield running


@pytest.fixture
async def webhook(
    tmp_path: Path, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Webhook]:
    monkeypatch.setattr(kubernetes, "PAUSE_SECONDS", 0.0)
    async with running_webhook(
        tmp_path,
        SLUICE_WEBHOOK_EVENTS="1",
        SLUICE_WEBHOOK_API_SERVER=server.url,
        SLUICE_WEBHOOK_ACCOUNT_DIR=str(server.account),
    ) as running:
        yield running


async def counted(webhook: Webhook, outcome: str, least: float) -> float:
    """The counter, once it is at least `least`."""
    found = 0.0

    async def enough() -> bool:
        nonlocal found
        found = await webhook.metric(f'{COUNTER}{{outcome="{outcome}"}}')
        return found >= least

    await until_async(f"{least} events are {outcome}", enough)
    return found


async def test_an_injected_pod_s_controller_gets_only_one_event(
    webhook: Webhook, server: FakeApiServer
) -> None:
    raw = encoded(review(object=owned(OWNER)))
    for _ in range(20):
        assert (await webhook.ask(raw))[0] == 200
    assert await counted(webhook, "sent", 1) == 1
    assert await counted(webhook, "repeated", 19) == 19
    (event,) = server.events()
    assert event["reason"] == "Injected"
    assert event["type"] == "Normal"
    assert event["involvedObject"] == {
        "namespace": "shop",
        **{name: value for name, value in OWNER.items() if name != "controller"},
    }
    assert event["metadata"]["name"].startswith("cart-5d9.")


async def test_a_skipped_pod_gets_a_warning_with_the_reason(
    webhook: Webhook, server: FakeApiServer
) -> None:
    webhook.injector.decide = lambda _review, _facts: Verdict(
        Outcome.skipped, skip_reason=SkipReason.opted_out
    )
    await webhook.ask(encoded(review(object={"metadata": {"name": "one"}})))
    await counted(webhook, "sent", 1)
    (event,) = server.events()
    assert (event["reason"], event["type"]) == ("InjectionSkipped", "Warning")
    assert event["message"].endswith("was not added: opted out")
    assert event["involvedObject"]["kind"] == "Pod"
    assert event["involvedObject"]["name"] == "one"


async def test_a_dry_run_leaves_no_event(webhook: Webhook, server: FakeApiServer) -> None:
    await webhook.ask(encoded(review(object=owned(OWNER), dryRun=True)))
    await webhook.ask(encoded(review(object={"metadata": {"name": "after"}})))
    await counted(webhook, "sent", 1)
    assert [each["involvedObject"]["name"] for each in server.events()] == ["after"]


async def test_a_full_queue_drops_events_and_delays_no_review(
    tmp_path: Path, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "MAX_QUEUED", 4)
    server.fault = lambda _method, _path: HANG
    async with running_webhook(
        tmp_path,
        SLUICE_WEBHOOK_EVENTS="1",
        SLUICE_WEBHOOK_API_SERVER=server.url,
        SLUICE_WEBHOOK_ACCOUNT_DIR=str(server.account),
    ) as webhook:
        for number in range(8):
            raw = encoded(review(object=owned({**OWNER, "uid": str(number)})))
            assert (await webhook.ask(raw))[0] == 200
        # One is being sent, and 4 wait.
        assert 3 <= await counted(webhook, "dropped", 3) <= 4


@pytest.mark.deep(stands_in="test_a_full_queue_drops_events_and_delays_no_review")
async def test_an_api_server_that_hangs_delays_no_review_and_the_queue_is_bounded(
    webhook: Webhook, server: FakeApiServer
) -> None:
    server.fault = lambda _method, _path: HANG
    for number in range(kubernetes.MAX_QUEUED + 50):
        raw = encoded(review(object=owned({**OWNER, "uid": str(number)})))
        assert (await webhook.ask(raw))[0] == 200
    # One is being sent, and 256 wait.
    assert 49 <= await counted(webhook, "dropped", 49) <= 50


async def test_only_the_latest_events_are_remembered(
    webhook: Webhook, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "MAX_REMEMBERED", 2)
    for name in ("a", "b", "c", "c", "a"):
        await webhook.ask(encoded(review(object={"metadata": {"name": name}})))
    assert await counted(webhook, "sent", 4) == 4
    assert await counted(webhook, "repeated", 1) == 1


async def test_a_refused_event_is_counted_and_the_next_is_sent(
    webhook: Webhook, server: FakeApiServer
) -> None:
    server.fault = lambda method, _path: 403 if method == "POST" else None
    await webhook.ask(encoded(review(object=owned(OWNER))))
    await counted(webhook, "failed", 1)
    server.fault = lambda _method, _path: None
    await webhook.ask(encoded(review(object=owned({**OWNER, "uid": "another"}))))
    await counted(webhook, "sent", 1)


@pytest.mark.parametrize("name", ["../../../apis/x", "shop/../kube-system", "", "a" * 64, "Shop"])
async def test_an_invalid_namespace_is_used_in_no_path(
    webhook: Webhook, server: FakeApiServer, name: str
) -> None:
    await webhook.ask(encoded(review(object=owned(OWNER), namespace=name)))
    await counted(webhook, "failed", 1)
    assert not server.calls


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"metadata": None},
        {"metadata": {"ownerReferences": "none"}},
        {"metadata": {"ownerReferences": [None, 7, {"controller": "true", "name": "x"}]}},
        {"metadata": {"ownerReferences": [{"controller": True}]}},
        {"metadata": {"name": ["a"], "generateName": {"b": 1}}},
    ],
)
def test_odd_metadata_makes_an_event_of_plain_texts(pod: dict[str, Any]) -> None:
    asked = parse(encoded(review(object=pod)), None)
    event = event_of(asked, Verdict(Outcome.injected))
    assert event is not None
    assert event.reason is EventReason.injected
    assert all(len(text) <= 253 for pair in event.owner for text in pair)
    hash(event)


@pytest.mark.parametrize("outcome", [Outcome.unchanged, Outcome.refused])
def test_other_outcomes_make_no_event(outcome: Outcome) -> None:
    assert event_of(parse(encoded(review()), None), Verdict(outcome)) is None
