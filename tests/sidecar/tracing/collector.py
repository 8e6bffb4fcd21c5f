"""A trace collector on loopback, which reads exports by OpenTelemetry's own protobuf types."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

_IDS = ("traceId", "spanId", "parentSpanId")


@dataclass
class Collector:
    """What arrived. With `status`, each export is answered so."""

    status: int = 200
    address: str = ""
    spans: list[Span] = field(default_factory=list)
    resources: list[dict[str, str]] = field(default_factory=list)

    def named(self, name: str) -> Span:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self.status != 200:
            return web.Response(status=self.status)
        for resource_spans in read(body).resource_spans:
            self.resources.append(texts(resource_spans.resource.attributes))
            for scope_spans in resource_spans.scope_spans:
                self.spans.extend(scope_spans.spans)
        return web.json_response({})


def read(body: bytes) -> ExportTraceServiceRequest:
    """An export in OTLP's JSON. Unlike protobuf's JSON it has ids in hex, not base64. Raises
    `ParseError` for a member that the protocol does not know."""

    def based(node: Any) -> Any:
        if isinstance(node, list):
            return [based(each) for each in node]
        if not isinstance(node, dict):
            return node
        return {
            name: base64.b64encode(bytes.fromhex(value)).decode() if name in _IDS else based(value)
            for name, value in node.items()
        }

    export = ExportTraceServiceRequest()
    json_format.ParseDict(based(json.loads(body)), export)
    return export


def texts(attributes: Any) -> dict[str, str]:
    """Attributes by name, each value as text."""
    values = ((each.key, each.value) for each in attributes)
    return {key: value.string_value or str(value.int_value) for key, value in values}


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    made.address = f"http://127.0.0.1:{port}"
    try:
        yield made
    finally:
        await runner.cleanup()
