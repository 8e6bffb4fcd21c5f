"""Opens the checkpoint store that `SLUICE_CHECKPOINT_STORE` names, and implements the store in a
directory, where each file is written once, whole or not at all.

    file:///dir            a directory
    s3://bucket/prefix     a bucket; endpoint, region and credentials as botocore finds them

    <dir>/<tenant>/<number>.note                                the notes
    <dir>/<tenant>/cosigned/<key id>/<incarnation>-<size>.note  those cosigned by a witness

The directory may be shared by several processes and, on a network file system with hard links, by
several machines. Only the last note of each day is kept, and the last of each witness, so that the
directory stays small over the years.

A file is written under a temporary name, synced, and linked to its name, which fails if the name
exists. So a name never shows half a note, and of two concurrent writers one is refused.
"""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from control_api.checkpoint_store.stored_note import (
    COSIGNED,
    MAX_NOTE,
    MAX_WITNESSES,
    CheckpointStore,
    CheckpointStoreFault,
    CosignedNote,
    StoredNote,
)
from policies.ground.distribution import how_to_install
from policies.ground.errors import worded

_DAY = 86_400


class NoteFolder:
    """A directory of notes: the files of `path` whose names match `pattern`. The first `create`
    makes the directory."""

    def __init__(self, path: Path, pattern: re.Pattern[str]) -> None:
        self.path = path
        self._pattern = pattern

    def names(self) -> list[str]:
        """Return the names of the kept notes, the newest first."""
        found = (each.name for each in _scan(self.path))
        return sorted((name for name in found if self._pattern.match(name)), reverse=True)

    def read(self, name: str) -> str | None:
        """Return the text of a note, or None if a newer note has replaced it meanwhile."""
        try:
            with (self.path / name).open("rb") as file:
                # What is no text is no valid note either; the reader finds that out.
                return file.read(MAX_NOTE).decode(errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise fault(self.path, error) from error

    def create(self, name: str, note: str) -> bool:
        """Write a note under a new name. Return False if the name exists. The name survives a crash
        only after `sync`."""
        _make(self.path)
        unfinished = self.path / f".{name}.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            _write(unfinished, note.encode())
            # If we die here, a file that no reader looks at is left.
            os.link(unfinished, self.path / name)
        except FileExistsError:
            return False
        finally:
            with suppress(FileNotFoundError):
                unfinished.unlink()
        return True

    def sync(self) -> None:
        _sync(self.path)

    def drop_replaced(self, names: list[str]) -> None:
        """Delete the note before the newest one, if both are of the same origin and day. `names`
        are those of all notes, the newest first."""
        if len(names) < 2:
            return
        newest, before = (self.path / name for name in names[:2])
        with suppress(FileNotFoundError):  # another process was faster
            if _origin_and_day(newest) == _origin_and_day(before):
                before.unlink()


def fault(path: Path, error: OSError) -> CheckpointStoreFault:
    return CheckpointStoreFault(f"checkpoint store `{path}`: {worded(error)}")


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise fault(folder, error) from error


def _write(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _make(folder: Path) -> None:
    if folder.is_dir():
        return
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The names of new folders must survive a power failure too.
    for each in missing:
        _sync(each.parent)


def _origin_and_day(path: Path) -> tuple[bytes, int]:
    with path.open("rb") as file:
        return file.readline(MAX_NOTE), int(os.fstat(file.fileno()).st_mtime) // _DAY


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_NOTE = re.compile(r"([0-9]{20})\.note\Z")
_COSIGNED_NOTE = re.compile(r"[0-9]{10}-[0-9]{20}\.note\Z")
_WITNESS = re.compile(r"[0-9a-f]{8}\Z")
_TRIES = 10


class FileStore:
    """The checkpoint store in a directory, which is created at the first `put`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def latest(self, tenant_id: str) -> StoredNote | None:
        return next(self.notes(tenant_id), None)

    def notes(self, tenant_id: str) -> Iterator[StoredNote]:
        folder = self._folder(tenant_id)
        below: str | None = None
        for _ in range(_TRIES):
            for name in folder.names():
                if below is not None and name >= below:
                    continue
                note = folder.read(name)
                if note is None:
                    # A newer note has replaced it meanwhile. List again: its successor is the
                    # latest now.
                    break
                below = name
                yield StoredNote(int(name[:20]), note)
            else:
                return
        raise CheckpointStoreFault(f"`{folder.path}` changes faster than it can be read")

    def put(self, tenant_id: str, number: int, note: str) -> bool:
        folder, name = self._folder(tenant_id), f"{number:020}.note"
        try:
            if not folder.create(name, note):
                return False
            # An old name may be free again, because its note was replaced (`drop_replaced`). Then
            # a later one exists, which this writer has not seen.
            names = folder.names()
            if names[0] != name:
                (folder.path / name).unlink(missing_ok=True)
                return False
            # The note is on disk, but its name only after this.
            folder.sync()
            folder.drop_replaced(names)
        except OSError as error:
            raise fault(folder.path, error) from error
        return True

    def put_cosigned(self, tenant_id: str, cosigned: CosignedNote) -> None:
        folder = self._cosigned(tenant_id, cosigned.witness)
        try:
            folder.create(f"{cosigned.incarnation:010}-{cosigned.size:020}.note", cosigned.note)
            folder.sync()
            folder.drop_replaced(folder.names())
        except OSError as error:
            raise fault(folder.path, error) from error

    def cosigned(self, tenant_id: str) -> list[str]:
        names = (each.name for each in _scan(self._folder(tenant_id).path / COSIGNED))
        witnesses = sorted(name for name in names if _WITNESS.match(name))
        found = (self._latest_of(tenant_id, each) for each in witnesses[:MAX_WITNESSES])
        return [note for note in found if note is not None]

    def tenants(self) -> list[str]:
        return sorted(unquote(each.name) for each in _scan(self._directory) if each.is_dir())

    def _latest_of(self, tenant_id: str, witness: str) -> str | None:
        folder = self._cosigned(tenant_id, witness)
        # One that was replaced while it was read has a successor.
        for _ in range(_TRIES):
            names = folder.names()
            note = folder.read(names[0]) if names else None
            if note is not None or not names:
                return note
        raise CheckpointStoreFault(f"`{folder.path}` changes faster than it can be read")

    def _folder(self, tenant_id: str) -> NoteFolder:
        # `quote` leaves dots alone, and a folder `..` would be another one.
        name = quote(tenant_id, safe="").replace(".", "%2E")
        return NoteFolder(self._directory / name, _NOTE)

    def _cosigned(self, tenant_id: str, witness: str) -> NoteFolder:
        path = self._folder(tenant_id).path / COSIGNED / witness
        return NoteFolder(path, _COSIGNED_NOTE)


_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()/-]{0,512}\Z")


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """The location of a checkpoint store: a directory, or a bucket with the prefix of its keys.
    `bucket` is empty for a directory."""

    directory: Path
    bucket: str = ""
    prefix: str = ""

    @classmethod
    def parse(cls, text: str) -> "StoreLocation":
        """Parse a location. Raise `ValueError` with the reason if `text` is not valid."""
        url = urlsplit(text)
        if url.query or url.fragment:
            raise ValueError("must have no `?` and no `#`")
        if url.scheme == "file":
            path = unquote(url.path)
            # `file://checkpoints` would name a host, not a directory.
            if url.netloc or not path.startswith("/") or path.strip("/") == "":
                raise ValueError("must be file:///directory, with an absolute path")
            return cls(Path(path))
        if url.scheme != "s3":
            raise ValueError("must be file:///directory or s3://bucket/prefix")
        bucket, prefix = url.netloc, url.path.strip("/")
        if not _BUCKET.match(bucket) or not _PREFIX.match(prefix) or "//" in prefix:
            raise ValueError("must be s3://bucket/prefix")
        if find_spec("botocore") is None:
            raise ValueError(f"s3 needs botocore; {how_to_install('aws')}")
        return cls(Path(), bucket, prefix)

    def __str__(self) -> str:
        if self.bucket:
            return f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        return self.directory.absolute().as_uri()


def open_store(location: StoreLocation) -> CheckpointStore:
    """Return the checkpoint store at `location`. This reads and writes nothing yet."""
    if not location.bucket:
        return FileStore(location.directory)
    # botocore is large, and only needed for this kind of store.
    from control_api.checkpoint_store.s3_store import S3Store

    return S3Store(location.bucket, location.prefix)
