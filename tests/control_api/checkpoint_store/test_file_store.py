"""Notes in a directory: numbered, written once, whole or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from control_api.checkpoint_store.location import FileStore
from control_api.checkpoint_store.stored_note import CheckpointStoreFault, CosignedNote, StoredNote

DAY = 86_400


def test_the_latest_note_is_the_one_of_the_highest_number(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "new" / "notes")
    assert store.latest("acme") is None
    assert store.tenants() == []
    assert store.put("acme", 1, "log\none\n")
    assert store.put("acme", 2, "other\ntwo\n")
    assert store.latest("acme") == StoredNote(2, "other\ntwo\n")
    assert list(store.notes("acme")) == [StoredNote(2, "other\ntwo\n"), StoredNote(1, "log\none\n")]
    assert store.tenants() == ["acme"]


def test_only_one_of_many_writers_gets_a_number(tmp_path: Path) -> None:
    """Of many writers that follow the same note, one is accepted."""
    stores = [FileStore(tmp_path) for _ in range(8)]
    ready, accepted = threading.Barrier(len(stores)), []

    def write(at: int) -> None:
        ready.wait()
        if stores[at].put("acme", 1, f"log\n{at}\n"):
            accepted.append(at)

    threads = [threading.Thread(target=write, args=(at,)) for at in range(len(stores))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(accepted) == 1
    assert stores[0].latest("acme") == StoredNote(1, f"log\n{accepted[0]}\n")
    assert [each.name for each in (tmp_path / "acme").iterdir()] == [f"{1:020}.note"]


def test_the_last_note_of_each_day_of_a_log_is_kept(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.put("acme", 1, "log\n1\n")
    path = next((tmp_path / "acme").iterdir())
    os.utime(path, (path.stat().st_mtime - DAY,) * 2)
    for number, origin in enumerate(("log", "log", "log#1", "log#1"), 2):
        assert store.put("acme", number, f"{origin}\n{number}\n")
    assert [each.number for each in store.notes("acme")] == [5, 3, 1]


def test_the_number_of_a_replaced_note_is_not_used_again(tmp_path: Path) -> None:
    """A writer that was stopped since it read note 1 must not put another note 2."""
    store = FileStore(tmp_path)
    for number in (1, 2, 3):
        assert store.put("acme", number, f"log\n{number}\n")
    assert not store.put("acme", 2, "log\nlate\n")
    assert [each.number for each in store.notes("acme")] == [3]


def test_each_witness_has_its_latest_cosigned_note(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    assert store.cosigned("acme") == []
    assert store.put("acme", 1, "log\n9\n")
    for incarnation, size in ((0, 9), (0, 10), (1, 4)):
        note = f"log#{incarnation}\n{size}\n"
        store.put_cosigned("acme", CosignedNote("0a0b0c0d", incarnation, size, note))
    # Late, and a second one of the same checkpoint: neither replaces anything.
    store.put_cosigned("acme", CosignedNote("0a0b0c0d", 1, 3, "log#1\n3\n"))
    store.put_cosigned("acme", CosignedNote("0a0b0c0d", 1, 4, "log#1\nagain\n"))
    store.put_cosigned("acme", CosignedNote("ffffffff", 0, 9, "log\n9\n"))
    assert store.cosigned("acme") == ["log#1\n4\n", "log\n9\n"]
    # Of one origin and day the last stays, as in the series.
    [one, other] = sorted((tmp_path / "acme" / "cosigned").iterdir())
    assert len(list(one.iterdir())) == 2
    assert store.latest("acme") == StoredNote(1, "log\n9\n")
    assert store.tenants() == ["acme"]
    next(other.iterdir()).unlink()
    (other / "text").write_text("not a note")
    assert store.cosigned("acme") == ["log#1\n4\n"]


@pytest.mark.parametrize("tenant", ["..", ".", "a/b", "a%2Fb", "ten_Ä x"])
def test_a_tenant_is_one_folder_whatever_its_name(tmp_path: Path, tenant: str) -> None:
    store = FileStore(tmp_path / "notes")
    assert store.put(tenant, 1, "log\n")
    assert store.latest(tenant) == StoredNote(1, "log\n")
    assert store.tenants() == [tenant]
    assert [each.name for each in tmp_path.iterdir()] == ["notes"]


def test_only_the_owner_can_read_the_store(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "notes")
    store.put("acme", 1, "log\n")
    modes = [each.stat().st_mode & 0o777 for each in (tmp_path / "notes").rglob("*")]
    assert modes == [0o700, 0o600]


def test_a_file_that_is_no_note_is_not_counted(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.put("acme", 1, "log\n")
    for name in (".2.1.tmp", "2.note", f"{3:020}.note.bak", "notes"):
        (tmp_path / "acme" / name).write_text("x")
    assert store.latest("acme") == StoredNote(1, "log\n")


def test_a_directory_that_can_not_be_used_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = FileStore(tmp_path / "file")
    with pytest.raises(CheckpointStoreFault):
        store.latest("acme")
    with pytest.raises(CheckpointStoreFault):
        store.put("acme", 1, "log\n")
