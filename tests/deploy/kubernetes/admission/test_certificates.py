"""The certificate's life: the plan step by step, and the controller against an API server that
fails. After every step, each leaf that a replica may serve is trusted by the configuration."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from prometheus_client import CollectorRegistry

from deploy.kubernetes.admission import kubernetes as kubernetes_api
from deploy.kubernetes.admission.certificates import controller
from deploy.kubernetes.admission.certificates.authority import issue, make_authority
from deploy.kubernetes.admission.certificates.controller import (
    DURATION_SECONDS,
    CertificateController,
)
from deploy.kubernetes.admission.certificates.stored import (
    LONGEST_LEAF,
    SETTLE_SECONDS,
    ServingContext,
    Stored,
    signed,
    valid,
)
from deploy.kubernetes.admission.kubernetes import KubernetesApi
from deploy.kubernetes.admission.metrics import WebhookMetrics
from deploy.kubernetes.admission.settings import read
from policies.ground.clock import Clock
from tests.deploy.kubernetes.admission.fake_api_server import (
    CONFIGURATION,
    HANG,
    LEASE,
    SECRET,
    FakeApiServer,
    configuration,
    fake_api_server,
)
from tests.support.certificates import authority

START = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)
NAMES = {"sluice-webhook.sluice-system.svc", "sluice-webhook.sluice-system.svc.cluster.local"}


@dataclass
class WebhookReplicas:
    """A cluster with a clock, and replicas of the webhook."""

    server: FakeApiServer
    stack: AsyncExitStack
    elapsed: float = 0.0
    wall: dt.datetime = START
    registries: list[CollectorRegistry] = field(default_factory=list)

    def clock(self) -> Clock:
        return Clock(lambda: int(self.wall.timestamp() * 1_000_000), lambda: self.elapsed)

    def sleep(self, **time: float) -> None:
        passed = dt.timedelta(**time)
        self.wall += passed
        self.elapsed += passed.total_seconds()

    async def replica(self, name: str = "a") -> Replica:
        settings = read(
            {
                "SLUICE_WEBHOOK_API_SERVER": self.server.url,
                "SLUICE_WEBHOOK_ACCOUNT_DIR": str(self.server.account),
                "SLUICE_WEBHOOK_POD": name,
            }
        )
        api = await self.stack.enter_async_context(
            KubernetesApi(settings.api_server, settings.account_dir)
        )
        serving, registry = ServingContext.empty(), CollectorRegistry()
        metrics = WebhookMetrics(registry, lambda: None)
        made = CertificateController(settings, api, serving, metrics, self.clock())
        return Replica(made, serving, registry)

    async def rotate(self, *replicas: Replica) -> None:
        """Let the replicas work until nothing is left to do, waiting as long as they have to."""
        for _ in range(4):
            for each in replicas:
                assert await each.controller.round()
            self.sleep(seconds=SETTLE_SECONDS + 1)

    def stored(self) -> Stored:
        return Stored.from_secret(self.server.objects[SECRET]["data"])

    def trusted(self) -> list[x509.Certificate]:
        """The authorities that the API server trusts by every entry of ours."""
        entries = self.server.objects[CONFIGURATION]["webhooks"]
        (bundle,) = {entries[i]["clientConfig"].get("caBundle", "") for i in (0, 2)}
        assert entries[1]["clientConfig"]["caBundle"] == "b3Ro"
        pem = base64.b64decode(bundle)
        return x509.load_pem_x509_certificates(pem) if pem else []

    def accepts(self, leaf: x509.Certificate) -> bool:
        """Whether the API server would complete a handshake with a replica that serves `leaf`."""
        return valid(leaf, self.wall) and any(
            signed(leaf, each) and valid(each, self.wall) for each in self.trusted()
        )


@dataclass
class Replica:
    controller: CertificateController
    serving: ServingContext
    registry: CollectorRegistry

    @property
    def leaf(self) -> x509.Certificate:
        pair = self.serving.pair
        assert pair is not None
        return x509.load_pem_x509_certificate(pair.certificate)

    def faults(self, reason: str) -> float:
        name = "sluice_webhook_certificate_failures_total"
        return self.registry.get_sample_value(name, {"reason": reason}) or 0.0


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[WebhookReplicas]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(fake_api_server(tmp_path))
        server.put(CONFIGURATION, configuration())
        made = WebhookReplicas(server, stack)
        server.now = lambda: made.wall
        yield made


async def test_a_first_start_makes_a_certificate_and_publishes_its_authority(
    world: WebhookReplicas,
) -> None:
    replica = await world.replica()
    assert await replica.controller.round()
    assert world.accepts(replica.leaf)
    names = replica.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == NAMES
    assert replica.leaf.not_valid_after_utc - world.wall == dt.timedelta(hours=72)
    (authority,) = world.trusted()
    assert authority.not_valid_after_utc - world.wall >= dt.timedelta(days=365)
    # Nothing is left to do, and nothing is written.
    before = len(world.server.calls)
    assert await replica.controller.round()
    assert not [call for call in world.server.calls[before:] if call[0] != "GET"]


async def test_a_second_replica_serves_the_certificate_of_the_first(world: WebhookReplicas) -> None:
    first, second = await world.replica("a"), await world.replica("b")
    await first.controller.round()
    await second.controller.round()
    assert first.leaf == second.leaf
    assert world.server.objects[LEASE]["spec"]["holderIdentity"] == ""


async def test_two_replicas_that_start_at_once_agree_on_one_certificate(
    world: WebhookReplicas,
) -> None:
    replicas = [await world.replica(name) for name in "abc"]
    await asyncio.gather(*(each.controller.round() for each in replicas))
    await world.rotate(*replicas)
    assert len({each.leaf for each in replicas}) == 1
    assert world.accepts(replicas[0].leaf)
    assert len([call for call in world.server.writes() if call[0] == "POST"]) >= 1
    assert len(world.trusted()) == 1


async def test_a_leaf_is_renewed_after_half_of_its_life_by_the_same_authority(
    world: WebhookReplicas,
) -> None:
    replica, late = await world.replica("a"), await world.replica("b")
    await world.rotate(replica, late)
    old, trusted = replica.leaf, world.trusted()
    world.sleep(hours=35)
    await replica.controller.round()
    assert replica.leaf == old
    world.sleep(hours=2)
    await replica.controller.round()
    assert replica.leaf != old
    assert world.trusted() == trusted
    # The other replica still serves the old one, for as long as it does not look.
    assert late.leaf == old
    assert world.accepts(old)
    await late.controller.round()
    assert late.leaf == replica.leaf


@pytest.mark.deep(
    stands_in="test_the_old_authority_stays_trusted_as_long_as_a_leaf_of_it_may_be_served"
)
async def test_a_new_authority_is_trusted_before_it_is_used_and_the_old_one_long_enough(
    world: WebhookReplicas,
) -> None:
    replica, away = await world.replica("a"), await world.replica("away")
    await world.rotate(replica, away)
    first = world.trusted()
    world.sleep(days=700)
    await world.rotate(replica, away)
    for _ in range(40):
        # As rarely as they may look, for two months in which the authority is replaced.
        world.sleep(hours=35.9)
        for _ in range(3):
            await replica.controller.round()
            assert world.accepts(replica.leaf)
            assert world.accepts(away.leaf)
            world.sleep(seconds=SETTLE_SECONDS + 1)
        await away.controller.round()
    assert world.accepts(away.leaf)
    assert len(world.trusted()) == 1
    assert world.trusted() != first


@pytest.mark.parametrize("reason", ["its key is lost", "it expires soon"])
async def test_the_old_authority_stays_trusted_as_long_as_a_leaf_of_it_may_be_served(
    world: WebhookReplicas, reason: str
) -> None:
    replica, away = await world.replica("a"), await world.replica("away")
    await world.rotate(replica, away)
    if reason == "its key is lost":
        del world.server.objects[SECRET]["data"]["ca.key"]
    else:
        (authority_,) = world.trusted()
        left = authority_.not_valid_after_utc - world.wall
        world.sleep(seconds=(left - 2 * LONGEST_LEAF).total_seconds() - 3600)
        await world.rotate(replica, away)
        assert len(world.trusted()) == 1
        world.sleep(hours=2)
    old = away.leaf
    await replica.controller.round()
    assert replica.leaf == old
    assert len(world.trusted()) == 2
    await replica.controller.round()
    assert replica.leaf == old, "served before it was trusted for long enough"
    world.sleep(seconds=SETTLE_SECONDS + 1)
    await replica.controller.round()
    assert replica.leaf != old
    assert world.accepts(replica.leaf)
    assert world.accepts(away.leaf)
    # A replica that lost touch with the API server serves the old one for as long as it is valid.
    while valid(old, world.wall):
        assert world.accepts(old)
        world.sleep(hours=12)
        await world.rotate(replica)
    world.sleep(hours=168)
    await world.rotate(replica)
    assert len(world.trusted()) == 1


@pytest.mark.parametrize("served", [True, False])
@pytest.mark.parametrize("number", range(1, 10))
async def test_a_death_at_any_write_is_healed_by_the_next_replica(
    world: WebhookReplicas, number: int, served: bool
) -> None:
    """The replica dies at its `number`th write: before the API server served it, or after, and
    before it sees the answer."""
    seen = 0

    def die(method: str, _path: str) -> None:
        nonlocal seen
        seen += method != "GET"
        if seen == number:
            world.server.fault = lambda _m, _p: 500

    first, second = await world.replica("a"), await world.replica("b")
    await world.rotate(second)
    del world.server.objects[SECRET]["data"]["ca.key"]
    if served:
        world.server.after = die
    else:
        world.server.before = die
    for _ in range(3):
        await first.controller.round()
        world.sleep(seconds=SETTLE_SECONDS + 1)
    assert seen >= number
    world.server.before = world.server.after = lambda _m, _p: None
    world.server.fault = lambda _m, _p: None
    assert world.accepts(second.leaf)
    # The first never comes back; its Lease runs out.
    world.sleep(seconds=DURATION_SECONDS + 1)
    await second.controller.round()
    world.sleep(seconds=DURATION_SECONDS + 1)
    await world.rotate(second)
    assert world.accepts(second.leaf)
    stored = world.stored()
    assert stored.authority is not None
    assert signed(second.leaf, stored.bundle[0])


@pytest.mark.parametrize(
    "damage",
    [
        {},
        {"tls.crt": ""},
        {"tls.crt": "!!"},
        {"tls.key": base64.b64encode(b"-----BEGIN PRIVATE KEY-----\n").decode()},
        {"ca.crt": base64.b64encode(b"nothing").decode()},
        {"ca.key": 7},
    ],
)
async def test_a_damaged_secret_heals(world: WebhookReplicas, damage: dict[str, Any]) -> None:
    replica = await world.replica()
    await replica.controller.round()
    data = world.server.objects[SECRET]["data"]
    world.server.put(SECRET, {"metadata": {}, "data": {**data, **damage} if damage else {}})
    await world.rotate(replica)
    assert world.accepts(replica.leaf)
    assert world.stored().authority is not None


async def test_a_pair_that_does_not_match_is_replaced(world: WebhookReplicas) -> None:
    replica = await world.replica()
    await replica.controller.round()
    other = issue(make_authority(START), tuple(NAMES), START, dt.timedelta(hours=72))
    data = world.server.objects[SECRET]["data"]
    data["tls.key"] = base64.b64encode(other.key).decode()
    await world.rotate(replica)
    assert world.accepts(replica.leaf)


async def test_a_configuration_that_was_reset_is_published_again(world: WebhookReplicas) -> None:
    replica = await world.replica()
    await world.rotate(replica)
    world.server.put(CONFIGURATION, configuration())
    assert not world.trusted()
    await replica.controller.round()
    assert world.accepts(replica.leaf)


async def test_without_a_configuration_certificates_are_made_all_the_same(
    world: WebhookReplicas,
) -> None:
    del world.server.objects[CONFIGURATION]
    replica = await world.replica()
    assert await replica.controller.round()
    world.sleep(hours=40)
    old = replica.leaf
    assert await replica.controller.round()
    assert replica.leaf != old


@pytest.mark.parametrize(("status", "reason"), [(403, "denied"), (500, "unreachable")])
async def test_a_refused_call_is_counted_and_tried_again(
    world: WebhookReplicas, status: int, reason: str
) -> None:
    replica = await world.replica()
    world.server.fault = lambda method, _path: status if method == "PATCH" else None
    assert not await replica.controller.round()
    assert replica.faults(reason) == 1
    world.server.fault = lambda _method, _path: None
    world.sleep(seconds=DURATION_SECONDS + 1)
    await world.rotate(replica)
    assert world.accepts(replica.leaf)


async def test_a_hanging_api_server_is_given_up(
    world: WebhookReplicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_api, "CALL_SECONDS", 0.2)
    replica = await world.replica()
    world.server.fault = lambda _method, _path: HANG
    assert not await replica.controller.round()
    assert replica.faults("unreachable") == 1


async def test_a_renewed_token_is_used_at_once(world: WebhookReplicas) -> None:
    replica = await world.replica()
    world.server.tokens = {"second-token"}
    assert not await replica.controller.round()
    assert replica.faults("denied") == 1
    (world.server.account / "token").write_text("second-token\n")
    assert await replica.controller.round()


async def test_an_authority_without_key_identifiers_is_trusted(
    world: WebhookReplicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificates of many clusters have none. From 3.13 on, Python asks for them."""
    lenient = ssl.create_default_context

    def of_python_3_13(**given: Any) -> ssl.SSLContext:
        made = lenient(**given)
        made.verify_flags |= ssl.VERIFY_X509_STRICT
        return made

    monkeypatch.setattr(ssl, "create_default_context", of_python_3_13)
    replica = await world.replica()
    assert await replica.controller.round()
    # Another authority is still refused.
    other = authority("another").path.read_bytes()
    (world.server.account / "ca.crt").write_bytes(other)
    distrusting = await world.replica("b")
    assert not await distrusting.controller.round()


async def test_a_stepped_clock_makes_no_certificates(world: WebhookReplicas) -> None:
    replica = await world.replica()
    await world.rotate(replica)
    leaf, now = replica.leaf, world.wall
    world.server.now = lambda: now
    for step in (dt.timedelta(days=400), dt.timedelta(days=-400)):
        world.wall = now + step
        assert not await replica.controller.round()
    assert replica.faults("clock") == 2
    world.wall = now
    assert await replica.controller.round()
    assert replica.leaf == leaf


async def test_another_replica_keeps_the_lease_until_it_has_been_silent_for_its_duration(
    world: WebhookReplicas,
) -> None:
    replica = await world.replica()
    world.server.put(LEASE, {"metadata": {}, "spec": {"holderIdentity": "another"}})
    assert await replica.controller.round()
    assert SECRET not in world.server.objects
    world.sleep(seconds=DURATION_SECONDS - 1)
    await replica.controller.round()
    assert SECRET not in world.server.objects
    world.sleep(seconds=2)
    await replica.controller.round()
    assert SECRET in world.server.objects


async def test_no_log_line_and_no_repr_holds_a_key(
    world: WebhookReplicas, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    replica = await world.replica()
    await world.rotate(replica)
    stored = world.stored()
    for shown in (caplog.text, repr(stored), repr(stored.leaf), repr(replica.controller)):
        assert "PRIVATE" not in shown
        assert "-----BEGIN" not in shown  # a service of another test may log its transactions


def test_a_round_has_enough_steps_for_every_plan() -> None:
    # First certificate, publish, and a look that finds nothing to do.
    assert controller.MAX_STEPS > 3
