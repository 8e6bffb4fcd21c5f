"""LangChain's standard tests of vector stores, run against Chroma straight and through the sidecar:
what passes straight passes through, or the difference is listed.

Skipped if the wheel `langchain-tests` is missing (`tests/servers.py`).
"""

from pathlib import Path

import pytest

from tests import servers
from tests.sidecar.protocols.chroma.suites import lost, run_suite
from tests.support.proxy import listening, sidecar, source

EXPECTED: dict[str, str] = {}
"""The tests that don't pass through the sidecar, each with the reason."""


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/chroma/test_writes.py::test_an_allowed_write_is_made_and_recorded"
)
async def test_langchains_standard_tests_pass_through_the_sidecar(
    chroma: int, tmp_path: Path
) -> None:
    suite = servers.need("langchain-tests")
    folder, tests = Path(__file__).parent, ("langchain_suite.py",)
    async with (
        sidecar(tmp_path) as made,
        listening(made, source(chroma, "chroma", sensitivity="low", writes="allow")) as port,
    ):
        straight, through = [
            await run_suite(folder, tests, tmp_path / name, {"SUITE_PORT": str(each)}, suite.parent)
            for name, each in (("straight", chroma), ("through", port))
        ]
        decided = await made.decisions()
    passed = [name for name, found in straight.items() if found.outcome == "passed"]
    assert len(passed) >= 20, straight
    differing = lost(straight, through)
    assert differing.keys() == EXPECTED.keys(), differing
    assert {(each[0], each[1]) for each in decided} == {("ALLOW", "analysts-read")}
