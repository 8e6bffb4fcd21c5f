"""The log's signing key in the data directory, and the check that it belongs to the database.

    log.key     the seed in base64, then one line of JSON per endorsement, oldest first

The file keeps a replaced key's public half and its signature over its successor, but never its
seed. This module handles the file, and decides which key may serve which database; it signs no log
itself.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from control_api.store.queries import log_keys
from control_api.store.store import Store
from control_api.store.url import UnusableDatabase
from policies.ground.canonical import b64, encode, unb64
from policies.ground.errors import worded
from policies.ground.process import secret_file
from policies.ground.signing import Endorsement, KeyRing, Signer, endorsed

FILE = "log.key"
SEED = 32


def open_or_make(data_dir: Path, keys_dir: Path | None = None) -> KeyRing:
    """Return the key in `keys_dir` if that is given, otherwise the one in the data directory. If
    that has no key file, create a new key."""
    if keys_dir is not None:
        # All replicas mount the same file: one that made its own would be refused by the database.
        path = keys_dir / FILE
        return _ring(path, secret_file.read_mounted(path))
    path = data_dir / FILE
    found = secret_file.read(path)
    if found is not None:
        # An unreadable key is never replaced: sidecars pin its public half, and would refuse
        # receipts signed by another key.
        return _ring(path, found)
    made = KeyRing(Signer.generate())
    secret_file.write(path, _content(made))
    return made


def fresh() -> bytes:
    return _content(KeyRing(Signer.generate()))


def open_existing(data_dir: Path, keys_dir: Path | None = None) -> KeyRing:
    """Return the key in `keys_dir` if that is given, otherwise the one in the data directory.
    Raises `UnusableFile` if it is missing."""
    if keys_dir is not None:
        return open_or_make(data_dir, keys_dir)
    path = data_dir / FILE
    found = secret_file.read(path)
    if found is None:
        raise secret_file.UnusableFile(
            f"`{path}` does not exist: the service creates it when it starts"
        )
    return _ring(path, found)


def rotate(data_dir: Path) -> KeyRing:
    """Replace the key with a new one, which the old one endorses. Running services keep the old key
    until they restart."""
    with _locked(data_dir):
        ring = open_existing(data_dir).rotated(Signer.generate())
        # One rename: if we die here, the file holds either the old key, or the new one with its
        # endorsement. Afterwards the old seed is in no file.
        secret_file.write(data_dir / FILE, _content(ring))
    return ring


async def ensure_database_key(store: Store, ring: KeyRing, data_dir: Path) -> None:
    """Check that this is the key that the database knows. Registers it if it is the first key, or
    an endorsed successor; otherwise raises `UnusableDatabase`, because its signatures would not be
    trusted."""
    current = await _current(store)
    if current is None:
        # The oldest key first: the database then holds the same endorsements as the file, so logs
        # that an earlier key signed still verify.
        first = ring.history[0].former if ring.history else ring.signer.public
        await log_keys.add(store, first, ring.history)
        current = await _current(store)
    assert current is not None
    if current != ring.signer.public and endorsed(current, ring.history) == ring.signer.public:
        # The key was rotated, perhaps several times, since a service last ran on this database.
        at = next(i for i, each in enumerate(ring.history) if each.former == current)
        await log_keys.add(store, None, ring.history[at:])
        current = await _current(store)
    if current != ring.signer.public:
        raise UnusableDatabase(
            f"`{data_dir / FILE}` is not the key that signs this database's log "
            f"(public half `{b64(current or b'')}`): copy `{FILE}` from the data directory of "
            f"the process that has it to `{data_dir / FILE}`"
        )


async def _current(store: Store) -> bytes | None:
    async with store.reading_all_tenants() as connection:
        return await log_keys.current(connection)


def _ring(path: Path, content: bytes) -> KeyRing:
    try:
        # Endorsements are canonical JSON, which contains no white space.
        seed, *lines = content.decode("ascii").split()
        raw = unb64(seed)
        history = tuple(Endorsement.from_wire(orjson.loads(line)) for line in lines)
        if len(raw) != SEED:
            raise ValueError(f"the seed must have {SEED} bytes")
        return KeyRing(Signer(raw), history)
    except (ValueError, TypeError, LookupError) as error:
        # The error may repeat the seed, so it is not shown.
        raise secret_file.UnusableFile(f"`{path}` holds no signing key") from error


def _content(ring: KeyRing) -> bytes:
    lines = [b64(ring.signer.seed()).encode(), *(encode(e.to_wire()) for e in ring.history)]
    return b"\n".join(lines) + b"\n"


@contextmanager
def _locked(data_dir: Path) -> Iterator[None]:
    """Lock the data directory, because one of two concurrent rotations would lose its new key."""
    # The folder, not the file: a rotation replaces the file, and with it any lock on it.
    try:
        handle = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise secret_file.UnusableFile(f"`{data_dir}`: {worded(error)}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
