"""The webhook in this process's event loop: real ports, real TLS, and a decision that the test
chooses."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from deploy.kubernetes.admission.review import Review
from deploy.kubernetes.admission.serve import Dependencies, Ports, serve
from deploy.kubernetes.admission.server import NamespaceFacts
from deploy.kubernetes.admission.settings import read
from deploy.kubernetes.admission.vocabulary import Outcome, Verdict
from policies.ground.addresses import ListenAddress
from policies.ground.clock import Clock
from tests.deploy.kubernetes.admission import reviews
from tests.support.certificates import authority

PATCH = ({"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},)
NAME = "sluice-webhook.sluice-system.svc"


class Injector:
    """Decides by a function of the test; adds a label unless told otherwise."""

    def __init__(self) -> None:
        self.decide: Callable[[Review, NamespaceFacts], Verdict] = lambda _review, _facts: Verdict(
            Outcome.injected, PATCH
        )
        self.facts: list[NamespaceFacts] = []

    def __call__(self, review: Review, facts: NamespaceFacts) -> Verdict:
        self.facts.append(facts)
        return self.decide(review, facts)

    async def run(self) -> None:
        await asyncio.Event().wait()


@dataclass
class Webhook:
    """A running webhook, and a client that trusts `context`."""

    reviews: ListenAddress
    health: ListenAddress
    injector: Injector
    stop: asyncio.Event
    task: asyncio.Task[None]
    context: ssl.SSLContext
    client: aiohttp.ClientSession

    async def ask(
        self, body: bytes | None = None, path: str = "/inject/enabled", **headers: str
    ) -> tuple[int, Any]:
        """Status and body of a review, on a connection that is kept."""
        async with self.client.post(
            f"https://127.0.0.1:{self.reviews.port}{path}",
            data=reviews.encoded(reviews.review()) if body is None else body,
            headers={"Content-Type": "application/json", **headers},
            ssl=self.context,
            server_hostname=NAME,
        ) as answer:
            return answer.status, await answer.json()

    async def get(self, path: str) -> tuple[int, str]:
        async with self.client.get(f"http://127.0.0.1:{self.health.port}{path}") as answer:
            return answer.status, await answer.text()

    async def metric(self, line: str) -> float:
        """The value of the metric whose name and labels are `line`; 0 if it has no sample."""
        _, text = await self.get("/metrics")
        found = [each for each in text.splitlines() if each.startswith(f"{line} ")]
        return float(found[0].rpartition(" ")[2]) if found else 0.0

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", self.reviews.port, ssl=self.context, server_hostname=NAME
        )


def patch_of(answer: Any) -> Any:
    return json.loads(base64.b64decode(answer["response"]["patch"]))


def certificate_files(folder: Path) -> None:
    """A new pair for the webhook's name, put there as Kubernetes does: by one link."""
    pair = authority().issue(NAME)
    version = folder / f"..{time.monotonic_ns()}"
    version.mkdir(parents=True)
    (version / "tls.crt").write_bytes(pair.certificate.read_bytes())
    (version / "tls.key").write_bytes(pair.key.read_bytes())
    (folder / "..new").symlink_to(version.name)
    (folder / "..new").replace(folder / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data", name))


@dataclass
class Starting:
    """A webhook whose ports open one after the other."""

    injector: Injector
    stop: asyncio.Event
    task: asyncio.Task[None]
    ports: asyncio.Queue[Ports]

    async def next_ports(self) -> Ports:
        """The ports, as soon as another one is open; raises what ended the webhook before."""
        waiting = asyncio.create_task(self.ports.get())
        await asyncio.wait((self.task, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            await self.task
        return await waiting


def start(folder: Path, **environ: str) -> Starting:
    """A webhook that starts. Its certificate comes from files, unless `environ` says otherwise."""
    settings = read(
        {
            "SLUICE_WEBHOOK_LISTEN": "127.0.0.1:0",
            "SLUICE_WEBHOOK_HEALTH_LISTEN": "127.0.0.1:0",
            "SLUICE_WEBHOOK_CERTIFICATES": "files",
            "SLUICE_WEBHOOK_TLS_DIR": str(folder / "tls"),
            "SLUICE_WEBHOOK_EVENTS": "0",
            "SLUICE_WEBHOOK_DRAIN_SECONDS": "0",
            **environ,
        }
    )
    stop, injector = asyncio.Event(), Injector()
    ports: asyncio.Queue[Ports] = asyncio.Queue()
    clock = Clock(lambda: time.time_ns() // 1000, time.monotonic)
    dependencies = Dependencies(clock, os.urandom, stop)
    task = asyncio.create_task(serve(settings, injector, dependencies, ports.put_nowait))
    return Starting(injector, stop, task, ports)


@asynccontextmanager
async def running_webhook(folder: Path, **environ: str) -> AsyncIterator[Webhook]:
    """A webhook with both ports open."""
    certificate_files(folder / "tls")
    starting = start(folder, **environ)
    await starting.next_ports()
    ports = await starting.next_ports()
    assert ports.reviews is not None
    context = ssl.create_default_context(cafile=str(authority().path))
    async with aiohttp.ClientSession() as client:
        yield Webhook(
            ports.reviews,
            ports.health,
            starting.injector,
            starting.stop,
            starting.task,
            context,
            client,
        )
    starting.stop.set()
    await starting.task
