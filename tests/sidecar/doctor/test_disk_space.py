"""A disk that has no room for what the settings let the sidecar store."""

from pathlib import Path

import pytest

from sidecar.doctor.host import Host
from tests.sidecar.doctor.recorded_host import TEXT, bare, found, observed, seen

SPOOL = "spool: {dir: spool, max_bytes: 30000000, segment_bytes: 10000000}"


@pytest.mark.parametrize(("free", "stored", "needed"), [
    (30_000_000, 0, None), (29_999_999, 0, 30_000_000), (0, 8192, 29_991_808),
])  # fmt: skip
def test_a_disk_without_room_for_the_spool_is_found(
    tmp_path: Path, free: int, stored: int, needed: int | None
) -> None:
    spool, host = tmp_path / "spool", bare()
    spool.mkdir()
    (spool / "segment").write_bytes(b"x" * stored)
    host.free = free
    text = TEXT.replace("spool: {dir: spool, max_bytes: 25165824}", SPOOL)
    told = seen(found(observed(tmp_path, host, text), "disk_space"))
    if needed is None:
        assert told == []
        return
    left = "what `spool.max_bytes` leaves to fill"
    assert told[0] == ("low", f"`{spool}` has {free} bytes free, but needs {needed}: {left}")
    # The cache has no limit of its own: it needs a disk that is not full.
    assert len(told) == (2 if free == 0 else 1)


def test_the_free_space_of_a_folder_that_is_not_there_yet_is_that_of_its_disk(
    tmp_path: Path,
) -> None:
    assert Host().free_bytes(tmp_path / "spool" / "later") > 0
    assert Host().stored_bytes(tmp_path / "spool" / "later") == 0
