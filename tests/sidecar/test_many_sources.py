"""A request about a thousand sources: decided in slices, stored together or not at all."""

import asyncio
from pathlib import Path

from policies.levels import Levels
from policies.retrieval import Retrieval
from policies.sets.policy_set import role_document, role_name
from sidecar.enforce import SLICE
from sidecar.settings.sections import SpoolSettings
from tests.support.proxy import ROLE, Sidecar, policy, sidecar

MANY = 1_000


def retrievals(made: Sidecar, count: int = MANY) -> list[Retrieval]:
    return [
        Retrieval(
            made.agent.role,
            "ann",
            f"s3://kb/lake/{number}",
            "low",
            None,
            None,
            made.agent.id,
            None,
            "s3",
            None,
            Levels("low", "low"),
        )
        for number in range(count)
    ]


def roomy(tmp_path: Path) -> SpoolSettings:
    return SpoolSettings(tmp_path / "spool", segment_bytes=2 << 20)


async def test_a_thousand_records_are_stored_together(tmp_path: Path) -> None:
    async with sidecar(tmp_path, spool=roomy(tmp_path)) as made:
        decided = await made.enforcer.decide(retrievals(made), made.agent.key())
        [durable] = {each.durable for each in decided}
        await durable
        assert [each[::2] for each in await made.decisions()] == [
            ("ALLOW", f"s3://kb/lake/{number}") for number in range(MANY)
        ]


async def test_records_that_do_not_fit_together_are_all_refused(tmp_path: Path) -> None:
    async with sidecar(tmp_path) as made:  # its segments have 1 MiB
        [denied] = await made.enforcer.decide(retrievals(made), made.agent.key())
        assert not denied.passes
        await denied.durable
        [record] = await made.decisions()
        assert record[:2] == ("DENY", "audit_unavailable")


async def test_another_request_is_answered_between_the_slices(tmp_path: Path) -> None:
    async with sidecar(tmp_path) as made:
        many, key, ended = retrievals(made, 3 * SLICE), made.agent.key(), list[str]()

        async def ask(name: str, asked: list[Retrieval]) -> None:
            decided = await made.enforcer.decide(asked, key)
            assert all(each.passes for each in decided)
            ended.append(name)
            await decided[0].durable

        await asyncio.gather(ask("many", many), ask("one", many[:1]))
        assert ended == ["one", "many"]
        assert len(await made.decisions()) == 3 * SLICE + 1


async def test_all_slices_are_decided_by_one_policy_set(tmp_path: Path) -> None:
    """The first slice was allowed by the set before; the change takes it back."""
    async with sidecar(tmp_path) as made:
        many = retrievals(made, 3 * SLICE)
        key = made.agent.key()

        async def revoke() -> None:
            narrow = policy(denied_sources=("s3://kb/lake/0",))
            made.publish_document(role_name(ROLE), role_document([narrow]))

        decided, _ = await asyncio.gather(made.enforcer.decide(many, key), revoke())
        [denied] = decided
        await denied.durable
        assert await made.decisions() == [("DENY", "analysts-read", "s3://kb/lake/0")]
