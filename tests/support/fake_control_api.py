"""The control API as a sidecar sees it: its routes over HTTP, and every fault on request.

The wire is the contract between the two services; the suite of the control API holds the real one
to the same form, and `tests/stories` runs both together.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

from policies.definitions.model import Agent, Key, Policy, TenantSettings
from policies.ground.addresses import RedisUrl
from policies.ground.canonical import b64, rfc3339, unb64
from policies.ground.keys import key_digest, make_key
from policies.ground.signing import Endorsement, Signer, receipt_message
from policies.sets.policy_set import (
    agent_document,
    agent_name,
    key_document,
    key_name,
    role_document,
    role_name,
    tenant_document,
)
from policies.trail.spool_chain import read_payload

SIDECAR_KEY = make_key(b"s" * 32)
EVALUATE_KEY = make_key(b"e" * 32)
READ_KEY = make_key(b"r" * 32)
ROLE = "underwriter"
AGENT = "agt_loans"
FAR = 4_102_444_800_000_000


def policy(**changes: Any) -> Policy:
    """Return a policy that allows the role up to `high` on `contracts` and `rates`, but for
    `changes`."""
    fields: dict[str, Any] = {
        "policy_id": "pol_1",
        "version": 1,
        "name": "underwriting",
        "agent_role": ROLE,
        "allowed_sources": ("contracts", "rates"),
        "denied_sources": ("payroll",),
        "max_sensitivity": "high",
    }
    return Policy(**{**fields, **changes})


class FakeControlApi:
    """The control API's state, and the faults it shows."""

    def __init__(self) -> None:
        self.epoch = "epoch-1"
        self.revision = 0
        self.tenant_id = "default"
        self.signer = Signer.generate()
        self.endorsements: list[Endorsement] = []
        self.documents: dict[str, tuple[int, bytes | None]] = {}
        self.sessions: dict[str, dict[str, Any]] = {}
        self.claims: list[dict[str, Any]] = []
        self.reports: list[dict[str, Any]] = []
        self.polls: list[tuple[str, int]] = []
        self.records: list[dict[str, Any]] = []
        self.page = 512
        self.sidecar_key = SIDECAR_KEY
        """The only key that the routes take."""
        self.refuse_with: int | None = None
        self.refuse_claims_with: int | None = None
        """A status that every route answers with."""
        self.feeds = True
        """True if the policy set can be had here; False leaves Redis as the only way."""
        self.looked_up: list[list[str]] = []
        self.tamper: Any = None
        """A function that is called with each policy-set answer before it is sent."""
        self.hold_claims: asyncio.Event | None = None
        self.ship = True
        self.answers_at_once = False
        """True if a poll without news is answered at once."""
        self._changed = asyncio.Event()
        self._held: dict[str, tuple[int, str]] = {}
        self._runner: web.AppRunner | None = None
        self.port = 0
        self.redis_url: RedisUrl | None = None
        """The Redis that sidecars are told to take the policy set from; None for this fake
        itself."""

    def publish(self, changes: dict[str, bytes | None]) -> int:
        """Publish documents in one transaction: each gets a revision of its own."""
        for name, body in changes.items():
            self.revision += 1
            self.documents[name] = (self.revision, body)
        self._changed.set()
        self._changed = asyncio.Event()
        return self.revision

    def create_tenant(self, *policies: Policy, settings: TenantSettings | None = None) -> None:
        """Create a tenant with one role, an approved agent, and a key of each scope."""
        self.publish(
            {
                "tenant": tenant_document(settings or TenantSettings(self.tenant_id)),
                role_name(ROLE): role_document(policies or (policy(),)),
                agent_name(AGENT): agent_document(Agent(AGENT, "approved", (ROLE,))),
                key_name(key_digest(EVALUATE_KEY)): key_document(Key("key_e", "evaluate")),
                key_name(key_digest(READ_KEY)): key_document(Key("key_r", "read")),
            }
        )

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application(client_max_size=4 * 1024 * 1024)
        app.router.add_get("/v1/sidecars/policy-set", self._policy_set)
        app.router.add_post("/v1/sidecars/policy-set/documents", self._documents)
        app.router.add_post("/v1/sidecars/sessions/claim", self._claim)
        app.router.add_post("/v1/sidecars/events", self._events)
        app.router.add_post("/v1/sidecars/report", self._report)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening; `start` opens the same port again."""
        if self._runner is not None:
            self._changed.set()
            await self._runner.cleanup()
            self._runner = None

    def _refusal(self, request: web.Request) -> web.Response | None:
        refused = self.refuse_with
        if request.path.endswith("/sessions/claim"):
            refused = refused or self.refuse_claims_with
        if refused is not None:
            body = {"error": "", "message": "so ordered", "code": refused}
            return web.json_response(body, status=refused)
        if request.headers.get("X-API-Key") != self.sidecar_key:
            body = {"error": "Forbidden", "message": "unknown key", "code": 403}
            return web.json_response(body, status=403)
        return None

    async def _policy_set(self, request: web.Request) -> web.Response:
        refusal = self._refusal(request) or self._without_feed()
        if refusal is not None:
            return refusal
        epoch, since = request.query["epoch"], int(request.query["since"])
        wait = float(request.query["wait"])
        assert 0 <= wait <= 25
        self.polls.append((epoch, since))
        reset = epoch != self.epoch or since > self.revision
        if not reset and since == self.revision and wait and not self.answers_at_once:
            changed = self._changed
            try:
                async with asyncio.timeout(wait):
                    await changed.wait()
            except TimeoutError:
                pass
        answer = self._answer(0 if reset else since, reset)
        if self.tamper is not None:
            answer = self.tamper(answer) or answer
        return web.json_response(answer, dumps=lambda value: orjson.dumps(value).decode())

    def _without_feed(self) -> web.Response | None:
        if self.feeds:
            return None
        return web.json_response({"code": 503, "message": "so ordered"}, status=503)

    async def _documents(self, request: web.Request) -> web.Response:
        refusal = self._refusal(request) or self._without_feed()
        if refusal is not None:
            return refusal
        names = orjson.loads(await request.read())["names"]
        assert 0 < len(names) <= 256
        self.looked_up.append(names)
        page: list[tuple[int, str, bytes | None]] = []
        for name in names:
            revision, body = self.documents.get(name, (0, None))
            page.append((revision, name, body))
        answer = self._wire(page[: self.page], False, len(page) > self.page)
        if self.tamper is not None:
            answer = self.tamper(answer) or answer
        return web.json_response(answer, dumps=lambda value: orjson.dumps(value).decode())

    def _answer(self, since: int, reset: bool) -> dict[str, Any]:
        newer = sorted(
            (revision, name, body)
            for name, (revision, body) in self.documents.items()
            if revision > since
        )
        page = newer[: self.page]
        return self._wire(page, reset, len(newer) > len(page))

    def _wire(
        self, page: list[tuple[int, str, bytes | None]], reset: bool, more: bool
    ) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "revision": self.revision,
            "reset": reset,
            "more": more,
            "now": rfc3339(0),
            "tenant_id": self.tenant_id,
            "log_key": b64(self.signer.public),
            "log_key_history": [each.to_wire() for each in self.endorsements],
            "documents": [
                {
                    "name": name,
                    "revision": revision,
                    "digest": None if body is None else hashlib.sha256(body).hexdigest(),
                    "body": None if body is None else body.decode(),
                }
                for revision, name, body in page
            ],
        }

    def now(self) -> int:
        return time.time_ns() // 1000

    async def _report(self, request: web.Request) -> web.Response:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        self.reports.append(orjson.loads(await request.read()))
        return web.json_response({"now": rfc3339(self.now()), "revision": self.revision})

    async def _claim(self, request: web.Request) -> web.Response:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        claim = orjson.loads(await request.read())
        self.claims.append(claim)
        if self.hold_claims is not None:
            await self.hold_claims.wait()
        session = self.sessions.setdefault(
            claim["session_id"],
            {
                "session_id": claim["session_id"],
                "state": "active",
                "agent_role": claim["agent_role"],
                "agent_id": claim["agent_id"],
                "expires_at": rfc3339(FAR),
            },
        )
        return web.json_response(session)

    async def _events(self, request: web.Request) -> web.Response:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        if not self.ship:
            return web.json_response({"code": 503, "message": "so ordered"}, status=503)
        batch = orjson.loads(await request.read())
        source, instance = batch["source"], batch["instance"]
        n, last = self._held.get(instance, (-1, ""))
        for payload in batch["records"]:
            spooled = read_payload(payload)
            src = spooled.core["src"]
            assert (src["id"], src["inst"]) == (source, instance)
            if src["n"] <= n:
                continue
            assert (src["n"], src["prev"]) == (n + 1, last), "a hole in the chain"
            n, last = src["n"], b64(spooled.hash)
            self.records.append(spooled.core)
        self._held[instance] = (n, last)
        message = receipt_message(self.tenant_id, source, instance, n, unb64(last))
        return web.json_response(
            {
                "source": source,
                "instance": instance,
                "n": n,
                "hash": last,
                "signature": b64(self.signer.sign(message)),
            }
        )

    def decisions(self) -> list[dict[str, Any]]:
        """Return `pub.response` of every decision in the log."""
        return [each["pub"]["response"] for each in self.records if each["kind"] == "decision"]


@asynccontextmanager
async def fake_control_api() -> AsyncIterator[FakeControlApi]:
    control = FakeControlApi()
    await control.start()
    try:
        yield control
    finally:
        await control.stop()


def many_roles(count: int) -> Iterable[tuple[str, bytes | None]]:
    """Return the documents of so many further roles."""
    for number in range(count):
        role = f"role-{number}"
        yield role_name(role), role_document([policy(name=f"p{number}", agent_role=role)])
