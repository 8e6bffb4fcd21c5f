"""The working set stays bounded, without losing what every decision needs."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.policy_cache.feed import Position
from sidecar.policy_cache.partial_replica import working_set
from sidecar.policy_cache.partial_replica.working_set import HeldDocument, WorkingSet
from sidecar.policy_cache.policy_store import CacheFile
from sidecar.policy_cache.policy_view import MissingDocument

LIMIT = 20


def document(text: str) -> HeldDocument:
    body = text.encode()
    return HeldDocument(hashlib.sha256(body).hexdigest(), body)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CacheFile]:
    monkeypatch.setattr(working_set, "MAX_DOCUMENTS", LIMIT)
    file = CacheFile(tmp_path)
    yield file
    file.close()


@pytest.fixture
def held(file: CacheFile) -> WorkingSet:
    return WorkingSet(file, ["settings"])


def store(held: WorkingSet, revision: int, *names: str) -> None:
    held.put_in_force(Position("e", revision), {name: document(name) for name in names})


def test_the_oldest_documents_are_dropped_first_and_required_ones_kept(held: WorkingSet) -> None:
    names = [f"role/{number}" for number in range(LIMIT)]
    store(held, 1, "settings", *names)
    # One over the limit: a tenth goes.
    assert held.digests().keys() == {"settings", *names[2:]}
    assert held.fetch("settings") == b"settings"
    with pytest.raises(MissingDocument):
        held.fetch(names[0])


def test_a_document_that_changes_often_counts_once(held: WorkingSet) -> None:
    for revision in range(1, 10 * LIMIT):
        store(held, revision, "settings", "role/a", "role/b")
    assert held.digests().keys() == {"settings", "role/a", "role/b"}


def test_the_limit_holds_after_a_restart(held: WorkingSet, file: CacheFile) -> None:
    store(held, 1, *(f"role/{number}" for number in range(LIMIT)))
    again = WorkingSet(file, ["settings"])
    store(again, 2, "role/one-more")
    assert len(again.digests()) == LIMIT + 1 - LIMIT // 10
    assert again.fetch("role/one-more") == b"role/one-more"


def test_nothing_takes_effect_if_old_documents_cannot_be_dropped(
    held: WorkingSet, file: CacheFile
) -> None:
    store(held, 1, *(f"role/{number}" for number in range(LIMIT)))
    file.connection.execute(
        "CREATE TEMP TRIGGER full BEFORE DELETE ON held BEGIN SELECT RAISE(ABORT, 'full'); END"
    )
    with pytest.raises(sqlite3.DatabaseError):
        store(held, 2, "role/one-more")
    assert held.position == Position("e", 1)
    with pytest.raises(MissingDocument):
        held.fetch("role/one-more")
