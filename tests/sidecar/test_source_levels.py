"""The level that the settings or the tenant give to a source holds at the sidecar's own port, too:
the highest that anybody states decides, and the record says who stated what."""

from typing import Any

import orjson
import pytest

from policies.sets.source_levels import SOURCES, sources_document
from sidecar.settings.model import NamedSource, RestRule, Source
from tests.support.fake_control_api import FakeControlApi, policy
from tests.support.sidecar import EVALUATE, RunningSidecar, ask
from tests.support.waiting import until_async

LOCAL = "http://127.0.0.1:9"
ALIAS = "rest://crm"


@pytest.fixture
def sidecar_settings() -> dict[str, Any]:
    chroma = Source(
        "kb",
        "chroma",
        LOCAL,
        None,
        "low",
        names={"chroma://kb/default/pay": NamedSource("salaries", "critical")},
    )
    rules = (
        RestRule("GET", "/public/**", "retrieve", sensitivity="low"),
        RestRule("GET", "/c/{id}", "retrieve", source_id="card-{id}"),
    )
    return {"sources": (chroma, Source("crm", "rest", LOCAL, None, "critical", routes=rules))}


@pytest.fixture(autouse=True)
def _any_source_up_to_high(control: FakeControlApi) -> None:
    control.create_tenant(policy(allowed_sources=("*",), max_sensitivity="high"))


@pytest.mark.parametrize(
    ("source_id", "decision"),
    [
        ("salaries", "DENY"),
        ("chroma://kb/default/pay", "DENY"),
        ("chroma://kb/default/other", "ALLOW"),
        ("chroma://kb", "ALLOW"),
        (ALIAS, "DENY"),
        (f"{ALIAS}/anything", "DENY"),
        (f"{ALIAS}/public/faq", "ALLOW"),
        ("card-7", "DENY"),
        ("card-7/8", "ALLOW"),
        ("unknown", "ALLOW"),
    ],
)
async def test_a_configured_level_is_a_floor_at_the_sidecars_own_port(
    sidecar: RunningSidecar, source_id: str, decision: str
) -> None:
    answer = await sidecar.evaluate(source_id=source_id, sensitivity_level="low")
    assert answer["decision"] == decision


async def test_each_of_a_batch_has_its_floor(sidecar: RunningSidecar) -> None:
    items = [ask(source_id=name, sensitivity_level="low") for name in ("salaries", "unknown")]
    found = await sidecar.call("POST", f"{EVALUATE}/batch", orjson.dumps({"items": items}))
    assert [each["decision"] for each in found.json()["results"]] == ["DENY", "ALLOW"]


async def test_the_highest_level_holds_and_the_record_has_all_three(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    await states(sidecar, control, {"chroma://kb/*": "medium"})
    asked = {"source_id": "chroma://kb/default/other", "sensitivity_level": "low"}
    found = await sidecar.call("POST", f"{EVALUATE}?explain=true", orjson.dumps(ask(**asked)))
    stated = {"request": "low", "sidecar": "low", "tenant": "medium"}
    assert found.json()["explain"]["levels"] == {**stated, "held": "medium", "by": "tenant"}
    record = (await sidecar.records())[-1]
    assert record["pub"]["facts"]["levels"] == stated
    assert record["pub"]["request"]["sensitivity_level"] == "medium"


async def test_the_tenant_s_level_denies_until_its_document_changes(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    await states(sidecar, control, {"unk*": "critical"})
    answer = await sidecar.evaluate(source_id="unknown", sensitivity_level="low")
    assert answer["decision"] == "DENY"
    assert "sensitivity `critical` is above `high`" in answer["reason"]
    await states(sidecar, control, {})
    assert (await sidecar.evaluate(source_id="unknown"))["decision"] == "ALLOW"
    assert "levels" not in (await sidecar.records())[-1]["pub"]["facts"]


async def test_an_unreadable_document_of_levels_denies(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    await in_force(sidecar, control.publish({SOURCES: b'{"levels":[["*","secret"]]}'}))
    assert (await sidecar.evaluate(source_id="unknown"))["policy_name"] == "evaluation_error"


async def states(sidecar: RunningSidecar, control: FakeControlApi, levels: Any) -> None:
    await in_force(sidecar, control.publish({SOURCES: sources_document(levels)}))


async def in_force(sidecar: RunningSidecar, revision: int) -> None:
    async def applied() -> bool:
        return sidecar.parts.policies.policy_set.revision >= revision

    await until_async("the sidecar has the revision", applied)
