"""The property behind rows B1 to B5 and B11 of `proxy/RULES.md`, on the wire: what the data source
received is what was decided about, and what was denied it never received."""

import asyncio
from collections.abc import Iterator
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.http.request_target import canonical
from tests.sidecar.own_loop import kept_open
from tests.sidecar.proxy.raw_client import ask
from tests.support.properties import examples
from tests.support.proxy import ProxySetup, policy, proxy_setup

PIECES = [
    "/", "//", "secret", "open", "%73ecret", "sec%72et", "..", ".", "%2e%2e", "%2E", "%2f", "%5c",
    "\\", "..;", ";x", ";", "%3b", "%00", "%0d%0a", "#", "%23", "?", "%3f", "?x=1", "%25", "%252e",
    "%zz", "%", "a", "A", "é", "%c3%a9", "%c0%ae", "*", ":", "@", "+", "%20", "~", "",
]  # fmt: skip

TARGETS = st.lists(st.sampled_from(PIECES), max_size=7).map(lambda parts: "/" + "".join(parts))


@pytest.fixture(scope="module")
def runner_and_setup() -> Iterator[tuple[asyncio.Runner, ProxySetup]]:
    shut = policy(denied_sources=("rest://kb/secret", "rest://kb/secret/*", "rest://kb/*/secret*"))
    with kept_open(lambda folder: proxy_setup(folder, shut)) as made:
        yield made


@given(TARGETS)
@examples(600)
def test_requests_arrive_exactly_as_judged(
    runner_and_setup: tuple[asyncio.Runner, ProxySetup], target: str
) -> None:
    runner, setup = runner_and_setup
    setup.upstream.begun.clear()
    line = f"GET {target} HTTP/1.1\r\nHost: kb\r\nConnection: close\r\n\r\n"
    answered = runner.run(ask(setup.port, line.encode()))
    arrived = [each.target for each in setup.upstream.begun]
    if answered.status != 200:
        assert arrived == []
        assert answered.status in (400, 403)
        return
    [received] = arrived
    # Read again, the received target is itself: no server further on can read it otherwise.
    again = canonical(received)
    assert again.forwarded == received
    assert again == canonical(target)
    parts = unquote(again.path).split("/")
    assert parts[1] != "secret"
    assert ".." not in parts
