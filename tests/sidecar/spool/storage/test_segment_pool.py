"""A segment becomes a spare again, whatever moment the process dies in."""

from __future__ import annotations

from pathlib import Path

from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.layout import reuse, spare_file


class _Died(BaseException):
    """The process, at this operation."""


class _Dying(Disk):
    """Dies before operation number `moment`."""

    def __init__(self, moment: int) -> None:
        self.left = moment

    def _at(self) -> None:
        if not self.left:
            raise _Died
        self.left -= 1

    def rename(self, path: Path, to: Path) -> None:
        self._at()
        super().rename(path, to)

    def sync_directory(self, path: Path) -> None:
        self._at()
        super().sync_directory(path)

    def rewrite(self, path: Path, data: bytes) -> None:
        self._at()
        super().rewrite(path, data)


def test_at_any_moment_of_its_reuse_a_segment_is_whole_or_gone(tmp_path: Path) -> None:
    content, used = b"records" * 100 + bytes(300), 700
    for moment in range(20):
        root = tmp_path / str(moment)
        instance = root / "instance"
        instance.mkdir(parents=True)
        segment, spare = instance / "0.seg", spare_file(root, 3)
        segment.write_bytes(content)
        try:
            reuse(_Dying(moment), segment, used, spare)
        except _Died:
            died = True
        else:
            died = False
        # Zeros under the segment's own name would look like damage.
        assert not segment.exists() or segment.read_bytes() == content
        assert not spare.exists() or spare.read_bytes() == bytes(len(content))
        assert died or (spare.exists() and not segment.exists())
        if not died:
            assert moment >= 4
            return
    raise AssertionError("it never ended")
