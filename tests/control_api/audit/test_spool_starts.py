"""A key begins only so many spools a day."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control_api.audit.test_judged_records import Sidecar, agent
from tests.support.control_api import ControlApi, running_control_api


@pytest.fixture
def bounded(tmp_path: Path) -> Iterator[ControlApi]:
    with running_control_api(tmp_path, SLUICE_NEW_SPOOLS_PER_DAY="2") as started:
        yield started


def test_a_key_begins_only_so_many_spools_and_continues_those(
    bounded: ControlApi,
) -> None:
    ours, theirs = (Sidecar(bounded, agent(bounded, name)) for name in ("ours", "theirs"))
    first = ours.decided()
    damaged = {**first, "open": {}, "core": {**first["core"], "v": 2.5}}
    for _ in range(3):
        # What can't be recorded begins nothing.
        assert ours.send([damaged]).status == 422
    assert ours.sent([first]) == []
    again = Sidecar(bounded, ours.agent_id, ours.key)
    assert again.sent([again.decided()]) == []
    third = Sidecar(bounded, ours.agent_id, ours.key)
    shipped = third.decided()
    answer = third.send([shipped])
    assert answer.status == 429
    assert 1 <= int(answer.headers["Retry-After"]) <= 3600
    # Spools that are there go on, also from their first record, and other keys begin their own.
    assert ours.sent([first, ours.decided()]) == []
    assert ours.sent([ours.decided()]) == []
    assert theirs.sent([theirs.decided()]) == []
    total = bounded.verified()["total"]
    assert third.send([shipped]).status == 429
    assert bounded.verified()["total"] == total
