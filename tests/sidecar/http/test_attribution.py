"""A request's user, session and task, none of which reaches the data source in any spelling."""

import pytest

from policies.definitions.model import SENSITIVITIES
from tests.sidecar.proxy.raw_client import get
from tests.support.fake_control_api import EVALUATE_KEY
from tests.support.proxy import ProxySetup


async def asked(setup: ProxySetup, *fields: str) -> dict[str, str]:
    """The request's record, with the commitment to the user opened."""
    assert (await setup.ask(get("/a", *fields))).status == 200
    record = (await setup.sidecar.records())[0]
    request: dict[str, str] = record["pub"]["request"]
    return request


async def user(setup: ProxySetup, *fields: str) -> str:
    import orjson

    assert (await setup.ask(get("/a", *fields))).status == 200
    batch = await setup.sidecar.spool.batch(1 << 20)
    assert batch is not None
    opened: str = orjson.loads(batch.payloads[0])["open"]["user_id"][1]
    return opened


async def test_a_request_that_names_nothing_gets_the_default(setup: ProxySetup) -> None:
    assert await user(setup) == "ada"


async def test_a_header_precedes_baggage_and_default(setup: ProxySetup) -> None:
    assert await user(setup, "X-Sluice-User: bob", "baggage: sluice.user=eve") == "bob"


async def test_baggage_precedes_the_default(setup: ProxySetup) -> None:
    assert await user(setup, "baggage: a=b,sluice.user=eve%20%C3%A9;p=1") == "eve é"


async def test_task_and_level_are_recorded(setup: ProxySetup) -> None:
    request = await asked(setup, "X-Sluice-Task: review", "X-Sluice-Sensitivity: high")
    assert request["task_type"] == "review"
    assert request["sensitivity_level"] == "high"
    assert request["source_type"] == "rest"


async def test_a_task_can_be_given_in_baggage(setup: ProxySetup) -> None:
    assert (await asked(setup, "Baggage: sluice.task=review"))["task_type"] == "review"


@pytest.mark.parametrize("stated", SENSITIVITIES[:3])
async def test_a_stated_level_can_only_raise_the_source_s(setup: ProxySetup, stated: str) -> None:
    request = await asked(setup, f"X-Sluice-Sensitivity: {stated}")
    assert request["sensitivity_level"] == max(stated, "medium", key=SENSITIVITIES.index)


async def test_a_raised_level_is_used_for_the_decision(setup: ProxySetup) -> None:
    answered = await setup.ask(get("/a", "X-Sluice-Sensitivity: critical"))
    assert answered.status == 403
    assert setup.upstream.begun == []


async def test_a_session_that_can_not_be_claimed_is_denied(setup: ProxySetup) -> None:
    # This setup has no control API, so a new session can't be claimed.
    answered = await setup.ask(get("/a", "X-Sluice-Session: s-1"))
    assert answered.status == 403
    assert answered.json["decision"]["policy_name"] == "evaluation_error"
    assert (await setup.sidecar.records())[0]["pub"]["request"]["session_id"] == "s-1"


async def test_attribution_is_not_forwarded(setup: ProxySetup) -> None:
    await setup.ask(
        get(
            "/a",
            "X-Sluice-User: bob",
            "x-sluice-TASK: t",
            "X-Sluice-Sensitivity: low",
            "X_Sluice_User: root",
            "X-Sluice-Event-Id: forged",
            "baggage: a=1, sluice.user=eve ,b=2;p",
            "Baggage: sluice.task=x",
            "traceparent: 00-1-2-01",
            "tracestate: v=1",
        )
    )
    [seen] = setup.upstream.seen
    assert [name.lower() for name, _ in seen.fields] == [
        "host", "traceparent", "tracestate", "baggage",
    ]  # fmt: skip
    assert seen.values("baggage") == ["a=1,b=2;p"]


async def test_an_alias_of_a_header_attributes_nothing(setup: ProxySetup) -> None:
    assert await user(setup, "X_Sluice_User: root", "X-Sluice_User: root") == "ada"


async def test_a_key_in_a_request_is_not_the_agents(setup: ProxySetup) -> None:
    assert (await setup.ask(get("/a", "X-API-Key: nonsense"))).status == 200
    # It may be for the data source, so it is forwarded.
    assert setup.upstream.seen[0].values("x-api-key") == ["nonsense"]


async def test_authorization_is_forwarded_to_the_data_source(setup: ProxySetup) -> None:
    own, other = f"Bearer {EVALUATE_KEY}", "Bearer slc_another"
    for value in (own, other, "Basic YTpi"):
        assert (await setup.ask(get("/a", f"Authorization: {value}"))).status == 200
        assert setup.upstream.seen[-1].values("authorization") == [value]
