"""Checkpoints in a directory, each file written once (`note_folder`):

    <dir>/<tenant>/<number>.note                                the notes
    <dir>/<tenant>/cosigned/<key id>/<incarnation>-<size>.note  those cosigned by a witness

The directory may be shared by several processes and, on a network file system with hard links, by
several machines. Of each day the last note stays, and the last of each witness, so that years of
checkpoints stay a small directory. Knows nothing of signatures.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

from control_api.checkpoint_store.note_folder import NoteFolder, fault
from control_api.checkpoint_store.stored_note import (
    COSIGNED,
    MAX_WITNESSES,
    CheckpointStoreFault,
    CosignedNote,
    StoredNote,
)

_NOTE = re.compile(r"([0-9]{20})\.note\Z")
_COSIGNED_NOTE = re.compile(r"[0-9]{10}-[0-9]{20}\.note\Z")
_WITNESS = re.compile(r"[0-9a-f]{8}\Z")
_TRIES = 10


class FileStore:
    """The notes under one directory, which is created at the first `put`."""

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
                folder.remove(name)
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
        parent = self._folder(tenant_id).path / COSIGNED
        try:
            witnesses = [each.name for each in os.scandir(parent)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise fault(parent, error) from error
        witnesses = sorted(name for name in witnesses if _WITNESS.match(name))
        found = (self._latest_of(tenant_id, each) for each in witnesses[:MAX_WITNESSES])
        return [note for note in found if note is not None]

    def tenants(self) -> list[str]:
        try:
            found = [each.name for each in os.scandir(self._directory) if each.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise fault(self._directory, error) from error
        return sorted(unquote(name) for name in found)

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
