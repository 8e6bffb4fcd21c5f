"""The log's signing key, in the data directory, and whether it is the one of the database.

    log.key     the seed, base64; below it a line of JSON for each endorsement, oldest first

Of a key that was replaced, its public half and its signature over the next are kept, never its
seed. Knows the file, and which key may serve which database; signs no log itself.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from control_api.security import secret_file
from control_api.store.queries import log_keys
from control_api.store.store import Store
from control_api.store.url import UnusableDatabase
from policies.ground.canonical import b64, encode, unb64
from policies.ground.signing import Endorsement, KeyRing, Signer, endorsed

FILE = "log.key"
SEED = 32


def open_or_make(data_dir: Path) -> KeyRing:
    """The key of this data directory; made where there is none.

    A key that is there and can't be read is never replaced: sidecars pin its public half, and
    receipts under another would be refused.
    """
    path = data_dir / FILE
    found = secret_file.read(path)
    if found is not None:
        return _ring(path, found)
    made = KeyRing(Signer.generate())
    secret_file.write(path, _content(made))
    return made


def open_existing(data_dir: Path) -> KeyRing:
    """The same for whoever must not be the first: `UnusableFile` where there is none."""
    path = data_dir / FILE
    found = secret_file.read(path)
    if found is None:
        raise secret_file.UnusableFile(
            f"`{path}` is not there: the service makes it when it starts"
        )
    return _ring(path, found)


def rotate(data_dir: Path) -> KeyRing:
    """Put a new key in place of the one that is there, which endorses it. Services go on with the
    one that they have read until they start again."""
    with _alone(data_dir):
        ring = open_existing(data_dir).rotated(Signer.generate())
        # One rename: if we die here the file holds the old key or the new one, with what leads to
        # it. The old seed is in no file from then on.
        secret_file.write(data_dir / FILE, _content(ring))
    return ring


async def ensure_database_key(store: Store, ring: KeyRing, data_dir: Path) -> None:
    """Make sure that this is the database's key, or the one that follows it, which it is then.
    `UnusableDatabase` where it is neither: what it signed, nobody would believe."""
    signs = await _current(store)
    if signs is None:
        first = ring.history[0].former if ring.history else ring.signer.public
        await log_keys.add(store, first, ring.history)
        signs = await _current(store)
    assert signs is not None
    if signs != ring.signer.public and endorsed(signs, ring.history) == ring.signer.public:
        at = next(i for i, each in enumerate(ring.history) if each.former == signs)
        await log_keys.add(store, None, ring.history[at:])
        signs = await _current(store)
    if signs != ring.signer.public:
        raise UnusableDatabase(
            f"`{data_dir / FILE}` is another key than the one that this database's log is signed "
            f"with (public half `{b64(signs or b'')}`): copy `{FILE}` from the data directory of "
            f"the process that has it to `{data_dir / FILE}`"
        )


async def _current(store: Store) -> bytes | None:
    async with store.reading_all_tenants() as connection:
        return await log_keys.current(connection)


def _ring(path: Path, content: bytes) -> KeyRing:
    try:
        seed, *lines = content.decode("ascii").split()
        raw = unb64(seed)
        history = tuple(Endorsement.from_wire(orjson.loads(line)) for line in lines)
        if len(raw) != SEED:
            raise ValueError("the seed has another length")
        return KeyRing(Signer(raw), history)
    except (ValueError, TypeError, LookupError) as error:
        # The error may repeat what was read: it is not shown.
        raise secret_file.UnusableFile(f"`{path}` holds no signing key") from error


def _content(ring: KeyRing) -> bytes:
    lines = [b64(ring.signer.seed()).encode(), *(encode(e.to_wire()) for e in ring.history)]
    return b"\n".join(lines) + b"\n"


@contextmanager
def _alone(data_dir: Path) -> Iterator[None]:
    """Two rotations at once would lose the key of one."""
    try:
        handle = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise secret_file.UnusableFile(f"`{data_dir}`: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
