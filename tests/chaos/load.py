"""The load while faults are made: agents that ask, and operators that change what agents may read.

Each request has a unique id as its user, so that it can be found in the log even if no client
received the response.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import aiohttp

from tests.chaos.history import Answered, History, Version
from tests.chaos.system import LIMIT, ROLES, SIDECARS, SOURCES, System
from tests.support.properties import chance

CLIENTS = 64
REST = 0.3
"""Seconds between a response and the next request."""
PATIENCE = 15.0
GRACE = 4.0
"""How long revoked keys and sessions are still tried, in seconds beyond the staleness limit."""
DOOMED = 0.1
"""The share of requests with a key that will be revoked."""
RACE = 6
"""How many requests share a session."""

_NO_ANSWER = (aiohttp.ClientError, OSError, TimeoutError, ValueError)


class Load:
    """Runs until `stop`. `history` collects the results."""

    def __init__(self, system: System) -> None:
        self.history = History()
        self._system = system
        self._numbers = itertools.count()
        self._doomed: list[str] = []
        self._random = chance("chaos")
        self._asked = inf
        self._tried_on: list[tuple[int, dict[str, Any]]] = []
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        timeout = aiohttp.ClientTimeout(total=PATIENCE, sock_connect=2)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            self._session = session
            tasks = [asyncio.create_task(self._client(number)) for number in range(CLIENTS)]
            tasks += [
                asyncio.create_task(each)
                for each in (
                    self._policies(),
                    self._kill_keys(),
                    self._kill_sessions(),
                    self._try_the_dead(),
                )
            ]
            try:
                yield
                for task in tasks:
                    if task.done():
                        task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def rate(self, seconds: float) -> float:
        """Responses per second in the last `seconds`."""
        since = time.monotonic() - seconds
        newest = reversed(self.history.answered.values())
        return (
            sum(1 for _ in itertools.takewhile(lambda each: each.heard > since, newest)) / seconds
        )

    async def _client(self, number: int) -> None:
        sidecar = number % SIDECARS
        while True:
            await asyncio.sleep(REST * self._random.uniform(0.5, 1.5))
            n = next(self._numbers)
            await self._ask(
                sidecar,
                self._key(sidecar),
                agent_role=self._random.choice(ROLES),
                agent_id=self._system.agents[sidecar],
                source_id=self._random.choice(SOURCES),
                # Agents at different sidecars race for the same session, a few requests each.
                session_id=f"s-{n // RACE}" if n % 2 else None,
                sensitivity_level="low",
                user_id=f"r-{n}",
            )

    def _key(self, sidecar: int) -> str:
        """A lasting key, or now and then one that is revoked, or soon will be."""
        if self._doomed and self._random.random() < DOOMED:
            return self._random.choice(self._doomed)
        return self._system.keys[sidecar]

    async def _ask(self, sidecar: int, key: str, **asked: Any) -> None:
        assert self._session is not None
        port = self._system.sidecars[sidecar].service.port
        body = {name: value for name, value in asked.items() if value is not None}
        sent = time.monotonic()
        try:
            async with self._session.post(
                f"http://127.0.0.1:{port}/v1/context/evaluate",
                json=body,
                headers={"X-API-Key": key},
            ) as answer:
                said = await answer.json(content_type=None)
                status = answer.status
        except _NO_ANSWER:
            self.history.unanswered[body["user_id"]] += 1
            await asyncio.sleep(0.1)
            return
        heard = time.monotonic()
        self.history.longest = max(self.history.longest, heard - sent)
        if status != 200:
            self.history.refused[status] += 1
            self.history.unanswered[body["user_id"]] += 1
            return
        self.history.answered[said["event_id"]] = Answered(
            said["event_id"], sent, heard, said["decision"], said["policy_name"], body, key
        )

    async def _admin(self, method: str, path: str, body: object = None) -> Any:
        """The response, or None without one: then it is unknown whether the request was served."""
        try:
            status, answer = await asyncio.to_thread(self._system.admin, method, path, body, 6)
        except (OSError, ValueError):
            return None
        return answer if status < 300 else None

    async def _policies(self) -> None:
        """Remove a source from the changing policy and add it again, over and over."""
        policy: dict[str, Any] | None = None
        while policy is None:
            rows = await self._admin("GET", "/v1/policies?agent_role=moving")
            policy = rows[0] if rows else None
        path = f"/v1/policies/{policy['policy_id']}"
        body: dict[str, Any] = {"name": "moving", "agent_role": "moving", "max_sensitivity": "high"}
        body["denied_sources"] = []
        for turn in itertools.count():
            await asyncio.sleep(self._random.uniform(0.2, 0.5))
            sources = SOURCES if turn % 2 else SOURCES[:1]
            # A change without an acknowledgement may have been made all the same, and last.
            self._asked = min(self._asked, time.monotonic())
            answer = await self._admin("PUT", path, {**body, "allowed_sources": list(sources)})
            if answer is not None:
                self._acknowledged(int(answer["version"]), sources, self._asked)
                self._asked = inf

    def _acknowledged(self, version: int, sources: tuple[str, ...], asked: float) -> None:
        known, now = self.history.policies, time.monotonic()
        if known[version] and known[version][-1].replaced == inf:
            return  # a body that is there already makes no version
        for each in known.get(version - 1, ())[-1:]:
            each.replaced = min(each.replaced, now)
        known[version].append(Version(sources, asked))

    async def _kill_keys(self) -> None:
        """Create a key, use it, revoke it, and try it again."""
        while True:
            made = await self._admin("POST", "/v1/keys", {"name": "doomed", "scope": "evaluate"})
            if made is None:
                await asyncio.sleep(0.2)
                continue
            self._doomed.append(made["key"])
            await asyncio.sleep(self._random.uniform(0.5, 1.5))
            while await self._admin("DELETE", f"/v1/keys/{made['key_id']}") is None:
                gone = await self._admin("GET", "/v1/keys?limit=1000")
                if gone is not None and made["key_id"] not in {row["key_id"] for row in gone}:
                    break
                await asyncio.sleep(0.2)
            self.history.dead_keys[made["key"]] = time.monotonic()
            asyncio.get_running_loop().call_later(LIMIT + GRACE, self._doomed.remove, made["key"])

    async def _kill_sessions(self) -> None:
        """Use a session, revoke it, and try it again."""
        for turn in itertools.count():
            session, sidecar = f"doomed-{turn}", turn % SIDECARS
            asked = {
                "agent_role": "steady",
                "agent_id": self._system.agents[sidecar],
                "source_id": SOURCES[0],
                "session_id": session,
                "sensitivity_level": "low",
            }

            await self._use(sidecar, asked)
            await asyncio.sleep(self._random.uniform(0.3, 0.8))
            if await self._admin("DELETE", f"/v1/sessions/{session}") is None:
                continue
            self.history.dead_sessions[session] = time.monotonic()
            self._tried_on.append((sidecar, asked))

    async def _use(self, sidecar: int, asked: dict[str, Any]) -> None:
        user = f"d-{next(self._numbers)}"
        await self._ask(sidecar, self._system.keys[0], **asked, user_id=user)

    async def _try_the_dead(self) -> None:
        """Try them until they have been revoked for longer than the limit."""
        while True:
            await asyncio.sleep(0.5)
            now = time.monotonic()
            dead = self.history.dead_sessions
            self._tried_on = [
                each for each in self._tried_on if now < dead[each[1]["session_id"]] + LIMIT + GRACE
            ]
            for sidecar, asked in self._random.sample(self._tried_on, min(4, len(self._tried_on))):
                await self._use(sidecar, asked)
