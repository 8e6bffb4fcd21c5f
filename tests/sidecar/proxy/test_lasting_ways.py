"""An event stream ends with the right to it, whichever way led to the data source: what takes that
right away is recorded as the denial that it is, and lineage says that the response was cut."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from policies.definitions.model import Agent, TenantSettings
from policies.sets.policy_set import (
    agent_document,
    agent_name,
    session_document,
    session_name,
)
from policies.sets.signed_head import Claim
from sidecar.live_keys import AgentIdentity
from sidecar.proxy.limits import LIMITS
from tests.sidecar.proxy.other_ways_in import WAYS, detoured
from tests.sidecar.proxy.raw_client import get
from tests.support import waiting
from tests.support.proxy import ROLE, Sidecar, listening, sidecar, source
from tests.support.scripted_source import Seen, data_source
from tests.support.waiting import until_async

OFTEN = replace(LIMITS, reauthorize_seconds=0.01)  # expires on purpose
AGENT, SESSION = "agt_1", "ses_1"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: abc\n\n"


def suspend(made: Sidecar) -> None:
    register(made, "suspended")


def revoke_the_session(made: Sidecar) -> None:
    made.publish_document(session_name(SESSION), session_document(SESSION))


def revoke_the_key(made: Sidecar) -> None:
    made.publish_document(made.key_document, None)


def freeze(made: Sidecar) -> None:
    made.publish(TenantSettings("ten_1", frozen_at=1))


ENDS: dict[str, tuple[Callable[[Sidecar], None], str]] = {
    "suspended": (suspend, "agent_not_approved"),
    "session": (revoke_the_session, "session_revoked"),
    "key": (revoke_the_key, "key_not_valid"),
    "frozen": (freeze, "tenant_frozen"),
}
"""What takes the right away, and the name of the denial that says so."""


def register(made: Sidecar, status: str) -> None:
    agent = Agent(AGENT, status, (ROLE,))  # type: ignore[arg-type]  # one of the statuses
    made.publish_document(agent_name(AGENT), agent_document(agent))


def let_in(made: Sidecar) -> None:
    """Gives the sidecar an agent that is registered, and that holds a session."""
    digest = bytes.fromhex(made.key_document.removeprefix("key/"))
    made.agent = AgentIdentity(AGENT, ROLE, digest, made.keys)
    register(made, "approved")
    until = (int(time.time()) + 3600) * 1_000_000
    made.claims[SESSION] = Claim("ten_1", "e", SESSION, "active", ROLE, AGENT, until)


def led(made: Sidecar, upstream: int, way: str) -> AbstractAsyncContextManager[int]:
    if way == "own port":
        return listening(made, source(upstream), OFTEN)
    return detoured(made, upstream, way, OFTEN)


def test_the_limit_for_a_new_judgement_is_at_most_a_second() -> None:
    assert LIMITS.reauthorize_seconds <= 1


@pytest.mark.asyncio(loop_factories=["uvloop"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("way", ["own port", *WAYS])
async def test_an_event_stream_ends_when_it_is_no_longer_allowed(
    tmp_path: Path, way: str, end: str
) -> None:
    async def script(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS)
        await waiting.never()

    take_away, name = ENDS[end]
    async with data_source(script) as upstream, sidecar(tmp_path) as made:
        let_in(made)
        async with led(made, upstream.port, way) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get("/a", f"X-Sluice-Session: {SESSION}"))
            await reader.readuntil(b"\r\n\r\n")  # an event's id may have these letters too
            await reader.readuntil(b"abc")
            take_away(made)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readuntil(b"0\r\n\r\n")
            writer.close()
            await until_async("the source has lost the connection", lambda: upstream.lost == 1)
            assert await made.decisions() == [
                ("ALLOW", "analysts-read", "rest://kb/a"),
                ("DENY", name, "rest://kb/a"),
            ]
            [lineage] = await made.lineage()
            assert lineage["outcome"] == "truncated"
