"""A door over a real enforcer and spool, asked without a gateway."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from policies.definitions.model import Key, Policy
from policies.ground.errors import Malformed
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import key_document, key_name
from sidecar.doors.judgement import CheckedRequest, Judgement, Outcome
from sidecar.http.headers import RequestHead
from sidecar.proxy.routing.source_endpoint import SharedParts
from sidecar.settings.sections import Door
from tests.support.proxy import CLOCK, ROLE, Sidecar, sidecar, source

NO_BODY = "the body is missing: set `with_request_body`"


class Asked:
    """A door `edge` to the source `kb`, and the key of its gateway."""

    def __init__(self, judgement: Judgement, made: Sidecar, digest: bytes | None) -> None:
        self.judgement = judgement
        self.sidecar = made
        self.digest = digest

    async def ask(
        self,
        method: str = "GET",
        target: str = "/a",
        *fields: tuple[bytes, bytes],
        body: bytes | None = None,
        fault: str = "",
    ) -> Outcome:
        """What is decided, once it is durable."""
        try:
            head = self.judgement.head_of(list(fields))
        except Malformed as error:
            head, fault = RequestHead({}, b"", None), error.message
        check = CheckedRequest(method, target, head, body, NO_BODY, fault)
        outcome = await self.judgement.judge(check, self.digest)
        for recorded in outcome.decisions:
            await recorded.durable
        return outcome

    async def verdict(self, *asked: Any, **more: Any) -> tuple[str, str]:
        """Whether the request passes, and by which policy."""
        outcome = await self.ask(*asked, **more)
        shown = outcome.shown
        return "pass" if outcome.passes else "stop", (
            "" if shown is None else shown.decision.policy_name
        )

    async def records(self) -> list[dict[str, Any]]:
        """The public part of each decision's request, with its answer."""
        return [
            {**record["pub"]["request"], **record["pub"]["response"]}
            for record in await self.sidecar.records()
            if record["kind"] == "decision"
        ]


def gateway_key(made: Sidecar, **changes: Any) -> bytes:
    """The digest of a new key, by default of the one role."""
    key = key_digest(make_key(os.urandom(32)))
    members: dict[str, Any] = {"permitted_roles": (ROLE,), **changes}
    scope = members.pop("scope", "evaluate")
    made.publish_document(key_name(key), key_document(Key("key_gateway", scope, **members)))
    return key


def shared_parts(made: Sidecar) -> SharedParts:
    return SharedParts(made.agent, made.enforcer, CLOCK, made.own_ports)


@asynccontextmanager
async def door(
    tmp_path: Path, *policies: Policy, settings: Door | None = None, port: int = 9, **changes: Any
) -> AsyncIterator[Asked]:
    """A door to a source with these changes, whose data source is at `port`."""
    async with sidecar(tmp_path, *policies) as made:
        settings = settings or Door("edge", "envoy_http", "kb")
        configured = replace(source(port), **changes)
        shared = shared_parts(made)
        judgement = Judgement(settings, configured, shared, made.keys)
        try:
            yield Asked(judgement, made, gateway_key(made))
        finally:
            judgement.close()
            shared.worker.close()
