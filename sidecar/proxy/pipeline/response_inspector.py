"""Responses that have to be read before they reach the agent: verified to describe the source that
was decided, or filtered down to what the agent may see.

Knows when a response is read whole and when event by event. Knows nothing of what it means.
"""

from collections.abc import Callable

from policies.ground.errors import UpstreamFailed
from sidecar.http.headers import refuse_encoded, without_whole_body_fields
from sidecar.http.server.request import HttpRequest, ResponseSent
from sidecar.protocols.protocol import FetchedResponse, ResponseTooLarge, SourceRef
from sidecar.protocols.strict_body import MAX_BRACKETS, has_too_many_brackets
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.local_response import Fields, event_fields
from sidecar.proxy.messages.response_relay import RelayedResponse, relay, write_whole
from sidecar.proxy.messages.sse import EventParser, FilteredStream, is_event_stream
from sidecar.proxy.pipeline.authorizer import Authorizer
from sidecar.proxy.pipeline.request_context import AllowedRequest
from sidecar.proxy.upstream.exchange import UpstreamResponse
from sidecar.proxy.worker_thread import LONGEST_INLINE, WorkerThread
from sidecar.recorder import RecordedDecision


class ResponseInspector:
    """Inspects the responses of one data source."""

    def __init__(self, authorizer: Authorizer, limits: ProxyLimits, worker: WorkerThread) -> None:
        self._authorizer = authorizer
        self._limits = limits
        self._worker = worker

    async def relay_verified(
        self,
        request: HttpRequest,
        allowed: AllowedRequest,
        response: UpstreamResponse,
        identify: Callable[[bytes], SourceRef | None],
    ) -> ResponseSent:
        """Relays a response that describes a source, if `identify` finds in it the source that was
        decided, or another one that is also allowed: a name may have spellings that only the data
        source knows."""
        decisions = allowed.decisions
        try:
            whole = await read_response(response, self._limits)
        finally:
            await response.finish()
        # Only a success describes a source.
        if 200 <= whole.status < 300:
            source = await self._worker.call(len(whole.body), identify, whole.body)
            if source is None:
                raise UpstreamFailed(
                    "the data source's response does not say which source it describes"
                )
            if source not in allowed.sources:
                decisions = decisions + await self._authorizer.allow(
                    (source,), allowed.routed.attribution
                )
        for recorded in decisions:
            await recorded.durable
        return await write_whole(request, whole, decision_fields(decisions))

    async def relay_filtered(
        self,
        request: HttpRequest,
        allowed: AllowedRequest,
        response: UpstreamResponse,
        relayed: RelayedResponse,
    ) -> ResponseSent:
        """Relays the parts of the response that the agent may see, filtered as a whole or event by
        event."""
        prepared, event = allowed.prepared, decision_fields(allowed.decisions)
        message = response.message
        try:
            if prepared.on_head is not None:
                prepared.on_head(message.status, message.fields)
            # An error holds no documents to filter.
            if not 200 <= message.status < 300 or message.empty:
                return await relay(request, response, event, relayed)
            if prepared.filter_event is not None and is_event_stream(message.fields):
                refuse_encoded(message.fields)
                parser = EventParser(prepared.filter_event, self._limits.inspected_response_bytes)
                events = FilteredStream(parser, self._worker, allowed.refresh, prepared.on_events)
                return await relay(request, response, event, relayed, events)
            if prepared.filter_response is None:
                return await relay(request, response, event, relayed)
            relayed.retries = response.retries
            whole = await read_response(response, self._limits)
        finally:
            await response.finish()
        fields, body = whole.fields, whole.body
        # A filter in the worker thread relies on facts that must be gathered on the loop.
        if len(body) > LONGEST_INLINE:
            allowed.refresh()
        part = await self._worker.call(len(body), prepared.filter_response, whole)
        if part.body != body:
            # A validator or digest of the whole would be wrong for a part of it.
            fields = without_whole_body_fields(fields)
        relayed.withheld = part.withheld
        # A HEAD was sent as a GET, and its agent gets no body.
        if request.method != "HEAD":
            relayed.count(part.body)
        relayed.begin(response)
        return await write_whole(request, whole._replace(fields=fields, body=part.body), event)


def decision_fields(decisions: list[RecordedDecision]) -> Fields:
    """Return the header fields that tell the agent about the decision. Of several decisions, a
    denial in report mode is shown first, since the agent has to learn of it."""
    if not decisions:
        return ()
    shown = decisions[-1]
    for recorded in decisions:
        if recorded.report_only:
            shown = recorded
            break
    return event_fields(shown.event_id, report_only=shown.report_only)


async def read_response(response: UpstreamResponse, limits: ProxyLimits) -> FetchedResponse:
    """Return the whole of a response that the sidecar has to read. Raises `UpstreamFailed`, and
    `ResponseTooLarge` for one that would take too long to parse."""
    whole = await response.read(limits.inspected_response_bytes)
    refuse_encoded(whole.fields)
    if has_too_many_brackets(whole.body):
        raise ResponseTooLarge(f"the data source's response has more than {MAX_BRACKETS} brackets")
    return whole
