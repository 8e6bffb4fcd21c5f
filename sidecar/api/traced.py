"""Has a handler make spans of its decisions. Knows no route."""

from sidecar.api.route import ApiReply, ApiRequest, Handler
from sidecar.tracing.trace import within
from sidecar.tracing.tracer import Tracer


def traced(handle: Handler, tracer: Tracer | None) -> Handler:
    """`handle`, with a span of each decision if the request is traced."""
    if tracer is None:
        return handle

    async def with_spans(request: ApiRequest, body: bytes) -> ApiReply:
        trace = tracer.begin(request.traceparent, proxied=False)
        if trace is None:
            return await handle(request, body)
        with within(trace):
            return await handle(request, body)

    return with_spans
