"""A sidecar with one door of each kind to one source, and the checks that gateways send to them."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from policies.definitions.model import Key, Policy
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import key_document, key_name
from sidecar.settings.model import Source
from sidecar.settings.sections import Door, DoorAgent
from tests.support.fake_control_api import (
    AGENT,
    EVALUATE_KEY,
    ROLE,
    FakeControlApi,
    fake_control_api,
    policy,
)
from tests.support.sidecar import FaultyDisk, RunningSidecar, running_sidecar

GATEWAY_KEY = make_key(b"g" * 32)
"""The key of an agent's gateway: it says which agent, and so which role."""

SPEAKER = DoorAgent(AGENT, ROLE)
DOORS = (
    Door("edge", "envoy_http", "crm", agent=SPEAKER),
    Door("nginx", "forward_auth", "crm", agent=SPEAKER),
    Door("ingress", "forward_auth", "crm", agent=SPEAKER, request_from="original"),
)
OPEN_DOORS = (
    Door("mesh", "envoy_http", "crm", key="none", agent=SPEAKER),
    Door("own", "envoy_http", "crm"),
)

Fields = Collection[tuple[str, str]]
PARTIAL = "x-envoy-auth-partial-body"


class Answered(NamedTuple):
    status: int
    fields: dict[str, str]
    """By lower-case name."""
    body: bytes

    @property
    def decision(self) -> str | None:
        return self.fields.get("x-sluice-decision")

    def json(self) -> Any:
        return orjson.loads(self.body)


class Checks:
    """Asks at the doors of `running`."""

    def __init__(self, running: RunningSidecar, control: FakeControlApi, disk: FaultyDisk) -> None:
        self.running = running
        self.control = control
        self.disk = disk

    async def ask(
        self,
        door: str,
        method: str = "GET",
        target: str = "/a",
        *fields: tuple[str, str],
        body: bytes = b"",
        key: str | None = EVALUATE_KEY,
    ) -> Answered:
        """What a door answers about a request, asked as its gateway would."""
        return await self.send(question(door, method, target, fields, body, key), method)

    async def send(self, data: bytes, method: str = "GET") -> Answered:
        """The first answer to these bytes."""
        address = self.running.address
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            writer.write(data)
            async with asyncio.timeout(20):
                return await answer_of(reader, method)
        finally:
            writer.close()

    async def decided(self) -> list[dict[str, Any]]:
        """What was asked and answered, of each decision so far."""
        return [
            {**record["pub"]["request"], **record["pub"]["response"]}
            for record in await self.running.records()
            if record["kind"] == "decision"
        ]


def question(
    door: str, method: str, target: str, fields: Fields, body: bytes, key: str | None
) -> bytes:
    """The check for a request, by the protocol of the door, which its name begins with."""
    lines = [f"{name}: {value}" for name, value in fields]
    path, asked = f"/v1/check/{door}", method
    family = {"nginx": "Forwarded", "ingress": "Original"}.get(door.partition("-")[0])
    if family is None:
        path += target
        if body and not any(name.lower() == PARTIAL for name, _ in fields):
            lines.append(f"{PARTIAL}: false")  # Envoy says it of every whole body
    else:
        lines += [f"X-{family}-Method: {method}", f"X-{family}-URI: {target}"]
        asked = "HEAD" if method == "HEAD" else "GET"
    if key is not None:
        lines.append(f"X-API-Key: {key}")
    lines += ["Host: gateway"]
    lines += [f"Content-Length: {len(body)}"] if body else []
    head = "\r\n".join([f"{asked} {path} HTTP/1.1", *lines])
    return head.encode("latin-1") + b"\r\n\r\n" + body


async def answer_of(reader: asyncio.StreamReader, method: str = "GET") -> Answered:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")[:-2]
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    length = 0 if method == "HEAD" else int(fields["content-length"])
    return Answered(int(first.split(" ")[1]), fields, await reader.readexactly(length))


CRM = Source("crm", "rest", "http://127.0.0.1:9", None, "medium")


@asynccontextmanager
async def checks(
    tmp_path: Path,
    *policies: Policy,
    source: Source = CRM,
    others: Iterable[Source] = (),
    doors: Iterable[Door] = (*DOORS, *OPEN_DOORS),
    synced: bool = True,
    **changed: Any,
) -> AsyncIterator[Checks]:
    """A sidecar with these doors; its policy allows everything in `crm` unless others are given.
    Unless `synced`, it gets no policy set."""
    disk = FaultyDisk()
    async with fake_control_api() as control:
        control.create_tenant(*(policies or (policy(allowed_sources=("*",)),)))
        bound = Key("key_g", "evaluate", bound_agent_id=AGENT)
        control.publish({key_name(key_digest(GATEWAY_KEY)): key_document(bound)})
        control.feeds = synced
        settings = {"sources": (source, *others), "doors": tuple(doors), **changed}
        async with running_sidecar(
            tmp_path, control, disk=disk, synced=synced, **settings
        ) as running:
            yield Checks(running, control, disk)
