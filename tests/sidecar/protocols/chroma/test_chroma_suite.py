"""Chroma's own tests, which its wheel brings, run against a Chroma server straight and through the
sidecar: what passes straight passes through.

The sidecar denies the server's administration, which the tests use before they begin: that goes
straight to the server (`suite_plugin.py`). Skipped if the wheel of pytest 8 is missing
(`tests/servers.py`).
"""

from pathlib import Path

import chromadb
import pytest

from tests import servers
from tests.sidecar.protocols.chroma.server import running_chroma
from tests.sidecar.protocols.chroma.suites import lost, run_suite
from tests.support.proxy import listening, sidecar, source

SUITE = Path(chromadb.__file__).parent / "test"
# Of the parts that speak to a server, those whose requests differ. The others test the client's
# parts alone, start a server of their own, or configure collections in further ways.
PARTS = (
    "test_api.py",
    "api/test_collection.py",
    "api/test_count_api.py",
    "api/test_delete_database.py",
    "api/test_fork_count_api.py",
    "api/test_get_database.py",
    "api/test_indexing_status.py",
    "api/test_invalid_update.py",
    "api/test_limit_offset.py",
    "api/test_list_databases.py",
    "api/test_numpy_list_inputs.py",
    "api/test_search_api.py",
    "client/test_database_tenant.py",
    "client/test_multiple_clients_concurrency.py",
    "property/test_collections.py",
    "property/test_collections_with_database_tenant.py",
    "property/test_embeddings.py",
    "property/test_filtering.py",
)


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/chroma/test_reads.py::test_the_client_reads_through_the_listener_as_from_chroma"
)
async def test_chromas_own_tests_pass_through_the_sidecar(tmp_path: Path) -> None:
    older_pytest = servers.need("pytest-8")
    with running_chroma(tmp_path, resets=True) as server:
        settings = {
            "CHROMA_INTEGRATION_TEST_ONLY": "1",
            "CHROMA_SERVER_HOST": "127.0.0.1",
            "SUITE_SERVER": str(server),
        }
        async with (
            sidecar(tmp_path) as made,
            listening(made, source(server, "chroma", sensitivity="low", writes="allow")) as port,
        ):
            straight, through = [
                await run_suite(
                    SUITE,
                    PARTS,
                    tmp_path / name,
                    {**settings, "CHROMA_SERVER_HTTP_PORT": str(each)},
                    older_pytest.parent,
                )
                for name, each in (("straight", server), ("through", port))
            ]
            decided = await made.decisions()
    passed = [name for name, found in straight.items() if found.outcome == "passed"]
    assert len(passed) >= 300, straight
    assert lost(straight, through) == {}
    assert ("ALLOW", "analysts-read") in {(each[0], each[1]) for each in decided}
