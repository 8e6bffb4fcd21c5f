"""One guard for many threads, tasks, event loops and processes."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import threading
from pathlib import Path

import pytest

from sluice_guard import Guard, UnusableSettings
from tests.deploy.sdk.python.scripted_server import (
    ALLOW,
    response,
    says,
    serving,
)


def test_connections_are_reused() -> None:
    with (
        serving(says(response(ALLOW))) as server,
        Guard(server.url, "k", "a", "r", timeout=30) as guard,
    ):
        for _ in range(20):
            assert guard.check("s")
        assert (server.connections, len(server.requests)) == (1, 20)

        async def ask() -> None:
            for _ in range(20):
                assert await guard.acheck("s")
            await asyncio.gather(*(guard.acheck("s") for _ in range(100)))
            guard.close()

        asyncio.run(ask())
        assert server.connections <= 102


def test_each_event_loop_has_connections_of_its_own() -> None:
    with (
        serving(says(response(ALLOW))) as server,
        Guard(server.url, "k", "a", "r", timeout=30) as guard,
    ):

        async def ask() -> bool:
            return bool(await guard.acheck("s"))

        assert all(asyncio.run(ask()) for _ in range(3))
        found: list[bool] = []
        threads = [
            threading.Thread(target=lambda: found.append(asyncio.run(ask()))) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [True, True, True]
        assert server.connections == 6


def test_a_forked_process_opens_its_own_connection() -> None:
    """On a shared one, parent and child would read each other's answers."""
    with (
        serving(says(response(ALLOW))) as server,
        Guard(server.url, "k", "a", "r", timeout=30) as guard,
    ):
        assert guard.check("s")
        child = os.fork()
        if child == 0:
            try:
                allowed = guard.check("s")
                os._exit(0 if allowed else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert server.connections == 2
        assert guard.check("s")
        assert server.connections == 2  # the parent's connection is still its own


def test_a_copy_is_the_guard_and_a_pickle_is_refused() -> None:
    guard = Guard("http://127.0.0.1:1", "k", "a", "r")
    assert copy.deepcopy({"guard": guard})["guard"] is guard
    assert copy.copy(guard) is guard
    with pytest.raises(TypeError):
        pickle.dumps(guard)


def test_a_guard_is_made_from_the_environment(tmp_path: Path) -> None:
    environ = {
        "SLUICE_GUARD_URL": "http://127.0.0.1:8710",
        "SLUICE_GUARD_KEY": "slc_x\n",
        "SLUICE_GUARD_AGENT_ID": "agt",
        "SLUICE_GUARD_ROLE": "support",
    }
    expected = "<Guard http://127.0.0.1:8710 agent='agt' role='support'>"
    assert repr(Guard.from_environ(environ)) == expected
    (tmp_path / "agent.key").write_text("slc_y\n")
    from_file = environ | {"SLUICE_GUARD_KEY_FILE": str(tmp_path / "agent.key")}
    assert repr(Guard.from_environ(from_file)) == expected
    with pytest.raises(ValueError, match="soon"):
        Guard.from_environ(environ | {"SLUICE_GUARD_TIMEOUT": "soon"})
    (tmp_path / "no.key").write_bytes(b"\xff")
    with pytest.raises(UnusableSettings, match=r"no\.key` does not hold a key$"):
        Guard.from_environ(environ | {"SLUICE_GUARD_KEY_FILE": str(tmp_path / "no.key")})
    # All of it at once, and as an absent variable is elsewhere.
    del environ["SLUICE_GUARD_AGENT_ID"]
    wrong = {"SLUICE_GUARD_ROLE": "", "SLUICE_GUARD_KEY_FILE": str(tmp_path / "absent")}
    with pytest.raises(UnusableSettings) as caught:
        Guard.from_environ(environ | wrong)
    first, second, third = str(caught.value).split("; ")
    assert (first, second) == (
        "SLUICE_GUARD_AGENT_ID is not set",
        "SLUICE_GUARD_ROLE is not set",
    )
    assert third.startswith("SLUICE_GUARD_KEY_FILE can't be read: ")
    assert str(tmp_path / "absent") in third
    with pytest.raises(KeyError, match="SLUICE_GUARD_KEY_FILE is not set, and no SLUICE_GUARD_KEY"):
        Guard.from_environ({})
