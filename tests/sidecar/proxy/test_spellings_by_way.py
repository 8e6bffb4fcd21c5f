"""The property of `test_spellings.py` over all the other ways in: what arrives is what was decided
about."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.sidecar.own_loop import kept_open
from tests.sidecar.proxy import test_spellings
from tests.sidecar.proxy.other_ways_in import WAYS, detour
from tests.support.proxy import ProxySetup, policy

test_requests_arrive_exactly_as_judged = test_spellings.test_requests_arrive_exactly_as_judged


@pytest.fixture(scope="module", params=WAYS)
def runner_and_setup(request: pytest.FixtureRequest) -> Iterator[tuple[asyncio.Runner, ProxySetup]]:
    shut = policy(denied_sources=("rest://kb/secret", "rest://kb/secret/*", "rest://kb/*/secret*"))
    with kept_open(lambda folder: detour(folder, request.param, shut)) as made:
        yield made
