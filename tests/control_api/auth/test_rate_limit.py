"""The rate limit: what is admitted, what is refused and how, and its cost in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from control_api import auth
from control_api.assembly import authenticator
from control_api.auth import Caller, OverLimit, RateLimit
from control_api.metrics.metrics import Instruments
from control_api.settings import read
from control_api.store.queries.tenant_rows import Installation
from control_api.store.tenant_cache import TenantCache
from policies.ground.clock import Clock
from tests.support.control_api import SUPERADMIN, ControlApi, asked, running_control_api


@dataclass
class Known:
    """A caller as the limit sees it: a scope and a name."""

    by: str
    scope: str = "evaluate"


class Limited:
    """A rate limit on a clock that only the test moves."""

    def __init__(self, rate: int) -> None:
        self.now = 100.0
        self.caller = Known("key_a")
        clock = Clock(lambda: 0, lambda: self.now)
        instruments = Instruments(CollectorRegistry())
        self.limit = RateLimit(self._authenticate, rate, clock, instruments)

    async def _authenticate(self, presented: str | None) -> Caller:
        return cast(Caller, self.caller)

    async def admitted(self, times: int, by: str = "key_a", scope: str = "evaluate") -> int:
        self.caller = Known(by, scope)
        count = 0
        for _ in range(times):
            try:
                await self.limit("presented")
                count += 1
            except OverLimit:
                pass
        return count


@pytest.mark.parametrize("rate", [1, 3, 10, 1000])
async def test_a_key_gets_its_rate_at_once_and_then_its_rate_a_second(rate: int) -> None:
    limited = Limited(rate)
    assert await limited.admitted(rate * 3) == rate
    limited.now += 1
    assert await limited.admitted(rate * 3) == rate
    limited.now += 1 / rate
    assert await limited.admitted(3) == 1


async def test_over_a_long_time_no_more_than_the_rate_is_admitted() -> None:
    limited = Limited(10)
    admitted = 0
    for _ in range(10_000):
        limited.now += 0.01
        admitted += await limited.admitted(1)
    assert 1000 <= admitted <= 1011


async def test_one_key_does_not_use_up_the_rate_of_another() -> None:
    limited = Limited(5)
    assert await limited.admitted(50, "key_a") == 5
    assert await limited.admitted(50, "key_b") == 5


async def test_refused_requests_use_up_no_rate() -> None:
    limited = Limited(2)
    assert await limited.admitted(1000) == 2
    limited.now += 0.5
    assert await limited.admitted(1) == 1


@pytest.mark.parametrize("scope", ["sidecar", "superadmin"])
async def test_sidecars_and_the_superadmin_are_not_limited(scope: str) -> None:
    assert await Limited(1).admitted(100, "key_s", scope) == 100


async def test_the_number_of_remembered_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "MAX_BUCKETS", 100)
    limited = Limited(5)
    for number in range(1000):
        await limited.admitted(1, f"key_{number}")
        assert limited.limit.buckets <= 100
    limited.now += 2
    for _ in range(100):
        await limited.admitted(1, "key_last")
        limited.now += 0.3
    assert limited.limit.buckets == 1


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    with running_control_api(tmp_path_factory.mktemp("strict"), SLUICE_RATE_LIMIT="3") as started:
        yield started


def over(api: ControlApi, method: str, path: str, body: Any, key: str) -> Any:
    """The first refusal, which comes within a few requests."""
    for _ in range(50):
        answer = api.call(method, path, body, key=key)
        if answer.status == 429:
            return answer
    raise AssertionError("fifty requests at once, and none was over the limit")


def test_a_request_over_the_limit_is_refused_with_retry_after_and_the_error_body(
    strict: ControlApi,
) -> None:
    answer = over(strict, "POST", "/v1/context/evaluate", asked(), strict.admin_key)
    assert answer.headers["Retry-After"] == "1"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.body == {
        "error": "Too Many Requests",
        "message": "the key is over its rate limit of 3 requests per second",
        "code": 429,
    }


def test_the_limit_is_checked_after_the_key_and_before_all_else(strict: ControlApi) -> None:
    over(strict, "GET", "/v1/nothing", None, strict.admin_key)
    for _ in range(10):
        assert strict.call("GET", "/v1/keys", key=None).status == 401
        assert strict.call("GET", "/v1/keys", key="not a key").status == 403
        assert strict.call("GET", "/health", key=None).status == 200
        assert strict.call("GET", "/v1/keys", key=SUPERADMIN).status == 403


@pytest.mark.deep(stands_in="test_keys_are_limited_only_if_the_setting_is_given")
def test_without_the_setting_nothing_is_limited(tmp_path: Path) -> None:
    with running_control_api(tmp_path) as api:
        answers = [api.call("GET", "/v1/keys").status for _ in range(200)]
    assert set(answers) == {200}


def test_keys_are_limited_only_if_the_setting_is_given() -> None:
    for given, limited in (({}, False), ({"SLUICE_RATE_LIMIT": "3"}, True)):
        made = authenticator(
            read(given),
            cast(TenantCache, None),
            Clock(lambda: 0, lambda: 0.0),
            Instruments(CollectorRegistry()),
            Installation("epoch", 0, bytes(32)),
        )
        assert isinstance(made, RateLimit) == limited


def test_refusals_are_counted(strict: ControlApi) -> None:
    over(strict, "GET", "/v1/keys", None, strict.admin_key)
    text = strict.call("GET", "/metrics", key=None).raw.decode()
    line = next(
        each for each in text.splitlines() if each.startswith('sluice_refusals_total{reason="rate"')
    )
    assert float(line.split()[1]) >= 1
