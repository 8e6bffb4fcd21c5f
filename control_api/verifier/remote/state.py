"""What a monitor has verified so far: the file of `--state`. Replaced as a whole, synced before and
after, so that a run that is killed leaves the state of the last one that succeeded."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from control_api.security import file_lock
from control_api.verifier.outcome import Unusable
from policies.ground.canonical import b64, unb64
from policies.trail.merkle_tree import Frontier
from policies.trail.walk.range_result import Source

FORMAT = "sluice-verify-state/1"
MAX_STATE = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Verified:
    """The log up to `tree.size`, as an earlier run saw and verified it. `keys` are the pinned
    public keys, `note` the newest checkpoint, `sources` where each enforcement point's chain ended,
    `missing` entries without an opening that no `redact` entry had excused yet."""

    log: str
    origin: str
    tree: Frontier
    last_leaf: bytes
    last_ts: str
    keys: tuple[bytes, ...]
    note: str
    sources: dict[Source, tuple[int, bytes]]
    missing: tuple[int, ...]

    def to_bytes(self) -> bytes:
        wire = {
            "format": FORMAT,
            "log": self.log,
            "origin": self.origin,
            "size": self.tree.size,
            "frontier": [b64(each) for each in self.tree.hashes],
            "last_leaf": b64(self.last_leaf),
            "last_ts": self.last_ts,
            "keys": [b64(each) for each in self.keys],
            "checkpoint": self.note,
            "sources": [
                [source.decode(), instance.decode(), n, hash_.decode()]
                for (source, instance), (n, hash_) in self.sources.items()
            ],
            "missing": list(self.missing),
        }
        return orjson.dumps(wire, option=orjson.OPT_INDENT_2) + b"\n"

    @classmethod
    def from_wire(cls, wire: Any) -> "Verified":
        """Raises `ValueError`, `TypeError`, `LookupError` or `AttributeError` for what `to_bytes`
        does not write."""
        if wire["format"] != FORMAT:
            raise ValueError("it has another format")
        tree = Frontier.from_bytes(int(wire["size"]), b"".join(map(unb64, wire["frontier"])))
        sources = {
            (source.encode(), instance.encode()): (int(n), hash_.encode())
            for source, instance, n, hash_ in wire["sources"]
        }
        return cls(
            str(wire["log"]), str(wire["origin"]), tree, unb64(wire["last_leaf"]),
            str(wire["last_ts"]), tuple(map(unb64, wire["keys"])), str(wire["checkpoint"]),
            sources, tuple(map(int, wire["missing"])),
        )  # fmt: skip


def read_state(path: Path) -> Verified | None:
    """The state, None if there is none yet. Raises `Unusable` for a file that can't be read: to
    begin anew would trust the service again."""
    try:
        with path.open("rb") as file:
            return Verified.from_wire(orjson.loads(file.read(MAX_STATE)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unusable(f"--state `{path}` can't be read: {error.strerror}") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise Unusable(
            f"--state `{path}` is not a state of this command: {error!s:.120}"
        ) from error


def write_state(path: Path, state: Verified) -> None:
    """Replace the state. Raises `Unusable`."""
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(state.to_bytes())
            file.flush()
            os.fsync(file.fileno())
        # If we die before this, the old state stays, and the next run verifies the same again.
        made.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with suppress(OSError):
            made.unlink()
        raise Unusable(f"--state `{path}` can't be written: {error.strerror}") from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps a second run on the same state out. Raises `Unusable`."""
    try:
        handle = file_lock.acquire(Path(f"{path}.lock"))
    except BlockingIOError as error:
        raise Unusable(f"--state `{path}` is in use by another run") from error
    except OSError as error:
        raise Unusable(f"--state `{path}` can't be locked: {error.strerror}") from error
    try:
        yield
    finally:
        os.close(handle)
