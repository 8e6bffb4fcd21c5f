"""A control API that takes records over HTTP, as the wire contract says, and fails on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

from policies.ground.canonical import b64, unb64
from policies.ground.errors import Conflict, Invalid, SluiceError
from policies.ground.signing import Signer, receipt_message
from policies.trail.spool_chain import Spooled, read_payload

TENANT = "acme"
MAX_BODY = 1024 * 1024


class FakeLog:
    """`held` advances with the append: exactly once. `faults` come, one per request, called
    before anything else; None means no answer at all. `lost` counts answers to drop after the
    append."""

    def __init__(self) -> None:
        self.signer = Signer.generate()
        self.entries: list[dict[str, Any]] = []
        self.held: dict[tuple[str, str], tuple[int, str]] = {}
        self.bodies: list[int] = []
        self.lengths: list[int] = []
        self.encodings: list[str | None] = []
        self.faults: list[Callable[[], web.Response | None]] = []
        self.always: Callable[[], web.Response] | None = None
        self.lost = 0
        self.sign_with: Signer | None = None
        self.tamper: Callable[[dict[str, Any]], dict[str, Any]] = dict
        self.keys: list[str | None] = []
        self.address = ""

    def events(self) -> list[str]:
        return [core["eid"] for core in self.entries if core["kind"] != "gap"]

    def gaps(self) -> list[dict[str, Any]]:
        return [core["pub"] for core in self.entries if core["kind"] == "gap"]

    async def take(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self.bodies.append(len(raw))
        self.lengths.append(request.content_length or 0)
        self.encodings.append(request.headers.get("Content-Encoding"))
        self.keys.append(request.headers.get("X-API-Key"))
        if self.always is not None:
            return self.always()
        if self.faults:
            ordered = self.faults.pop(0)()
            if ordered is None:
                await asyncio.Event().wait()
            assert ordered is not None
            return ordered
        try:
            receipt = self._append(orjson.loads(raw))
        except SluiceError as error:
            return web.json_response(error.body(), status=error.status)
        if self.lost:
            self.lost -= 1
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(self.tamper(receipt))

    def _append(self, body: dict[str, Any]) -> dict[str, Any]:
        assert body.keys() == {"source", "instance", "records"}
        source = (body["source"], body["instance"])
        n, prev = self.held.get(source, (-1, ""))
        fresh: list[Spooled] = []
        for payload in body["records"]:
            record = read_payload(payload)
            src = record.core["src"]
            if (src["id"], src["inst"]) != source:
                raise Invalid("a record of another instance")
            if src["n"] <= n:
                continue
            if (src["n"], src["prev"]) != (n + 1, prev):
                raise Conflict(f"record {src['n']} does not follow record {n}")
            n, prev = src["n"], b64(record.hash)
            fresh.append(record)
        # One transaction: all of it or nothing.
        self.entries += [record.core for record in fresh]
        self.held[source] = (n, prev)
        return self.receipt(*source)

    def receipt(self, source: str, instance: str) -> dict[str, Any]:
        n, hash_ = self.held[source, instance]
        message = receipt_message(TENANT, source, instance, n, unb64(hash_))
        signature = (self.sign_with or self.signer).sign(message)
        about = {"source": source, "instance": instance, "n": n, "hash": hash_}
        return {**about, "signature": b64(signature)}


def refusal(status: int) -> Callable[[], web.Response]:
    """A fault: the error body (`CONTRACT.md`, Errors)."""

    def answer() -> web.Response:
        return web.json_response({"error": "", "message": "no", "code": status}, status=status)

    return answer


@asynccontextmanager
async def serving(log: FakeLog, port: int = 0) -> AsyncIterator[FakeLog]:
    app = web.Application(client_max_size=MAX_BODY)
    app.router.add_post("/v1/sidecars/events", log.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    log.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield log
    finally:
        await runner.cleanup()
