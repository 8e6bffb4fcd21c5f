"""The tests of the reverse proxy, as they are, over every other way in."""

import inspect
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.sidecar.http import test_headers
from tests.sidecar.proxy import (
    test_forwarded_requests,
    test_relayed_responses,
    test_streaming,
    test_upstream_connections,
)
from tests.sidecar.proxy.messages import test_framing
from tests.sidecar.proxy.other_ways_in import WAYS, detour
from tests.support.proxy import ProxySetup, policy

ELSEWHERE = {
    # They open connections, or listeners, of their own.
    "test_an_upload_and_its_answer_stream_at_the_same_time": WAYS,
    # They measure this process, in which a detour holds what it reads.
    "test_a_slow_reader_does_not_fill_memory": WAYS,
    "test_a_slow_data_source_holds_back_an_upload": WAYS,
    "test_idle_connections_use_little_memory_each": WAYS,
    # The host of a request says where it goes, on these ways.
    "test_the_host_of_a_request_does_not_change_its_source": WAYS,
    # A CONNECT is answered there by what it asks for: test_connect.py.
    "test_data_that_follows_a_refused_connect_later_is_not_read": WAYS,
    "test_a_cached_head_is_decided_anew_with_another_version_or_method": ("absolute",),
    # There TLS is TLS: test_connect_passthrough.py, test_transparent_tls.py.
    "test_an_unreadable_request_is_refused_recorded_and_not_forwarded[tls]": (
        "tunnel",
        "redirected",
    ),
    # Where only a host names the source, a request without one has none: test_transparent.py.
    "test_an_agent_of_http_1_0_gets_a_reset_if_its_answer_breaks_off": ("redirected",),
    "test_http_1_0_gets_no_chunks": ("redirected",),
    "test_http_1_0_may_keep_its_connection": ("redirected",),
    # Bodies that look like requests are rewritten on that way.
    "test_a_denied_request_with_a_body_leaves_the_next_one_intact": ("absolute",),
}
"""What is not tested again, and by which ways."""


def again(module: ModuleType) -> dict[str, Callable[..., object]]:
    """The tests of a module that send requests of their own through `setup`."""
    return {
        name: each
        for name, each in vars(module).items()
        if name.startswith("test_") and "setup" in inspect.signature(each).parameters
    }


for _module in (
    test_framing,
    test_headers,
    test_streaming,
    test_forwarded_requests,
    test_relayed_responses,
    test_upstream_connections,
):
    globals().update(again(_module))


# The loops differ in how a connection ends, and that is told of them in the tests themselves.
pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])


@pytest.fixture(params=WAYS)
async def setup(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[ProxySetup]:
    """As the reverse proxy's."""
    way = request.param
    name = request.node.callspec.params.get("name")
    tested = request.node.originalname
    if way in {*ELSEWHERE.get(tested, ()), *ELSEWHERE.get(f"{tested}[{name}]", ())}:
        pytest.skip(f"see ELSEWHERE: {way}")
    closed = policy(denied_sources=("rest://kb/secret", "rest://kb/secret/*"))
    async with detour(tmp_path, way, closed) as made:
        yield made
