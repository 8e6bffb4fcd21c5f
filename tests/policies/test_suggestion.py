"""A policy names the end of a source's id: those who write policies are told how to name it."""

import pytest

from policies.checks.finding import Facts
from policies.definitions.model import Key, Policy, TenantSettings
from policies.evaluate import evaluate
from policies.nearest_miss import suggest
from policies.retrieval import Retrieval
from policies.sets.role import compile_role

RECORDED = "chroma://db/handbook"


def suggested(
    *allowed: str, denied: tuple[str, ...] = (), role: str = "support", source: str = RECORDED
) -> str | None:
    """What is suggested to a tenant with one policy, of `role`, for a call of role `support`."""
    compiled = compile_role(role, [Policy("p", 1, "reads", role, allowed, denied, "high")], "-")
    asked = Retrieval(
        agent_role="support", user_id="ann", source_id=source, sensitivity_level="low"
    )
    facts = Facts(
        TenantSettings("t"),
        Key("k", "evaluate"),
        None,
        None,
        compiled if role == "support" else None,
        0,
    )
    return suggest(asked, evaluate(asked, facts), facts.role, compiled.clauses)


@pytest.mark.parametrize(
    ("allowed", "source", "entry", "whole"),
    [
        ("handbook", RECORDED, "handbook", RECORDED),
        ("db/handbook", RECORDED, "db/handbook", RECORDED),
        ("hand*", RECORDED, "hand*", "chroma://db/hand*"),
        ("kb/a", "rest://intranet/kb/a", "kb/a", "rest://intranet/kb/a"),
    ],
)
@pytest.mark.parametrize("role", ["support", "other"])
def test_an_entry_that_a_source_ends_in_is_suggested_in_full(
    allowed: str, source: str, entry: str, whole: str, role: str
) -> None:
    assert suggested("else", allowed, source=source, role=role) == (
        f"policy `reads` names `{entry}`, and this source's whole id is `{source}`: write "
        f"`{whole}` in `allowed_sources`"
    )


@pytest.mark.parametrize(
    ("allowed", "denied"),
    [
        (["payroll"], ()),
        (["book"], ()),
        (["handbook"], (RECORDED,)),
        ([RECORDED], ()),
        (["*"], ()),
        ([], ()),
    ],
)
def test_no_entry_is_suggested_in_any_other_case(
    allowed: list[str], denied: tuple[str, ...]
) -> None:
    assert suggested(*allowed, denied=denied) is None
