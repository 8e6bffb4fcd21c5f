"""Verifies the entries that were added to a service's log since the last run. The last run left a
state file, which says how far the log was verified.

The service is not trusted: the log that it shows now must begin with exactly the Merkle tree that
was verified before. So the service can't remove or change entries unnoticed, or show this monitor
another log than last time.

The state file is replaced atomically and synced to disk, so that a run that is killed leaves the
state of the last run that succeeded.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from deploy.commands.verify.check import CheckOptions, FileCheck
from deploy.commands.verify.pool import Progress
from deploy.commands.verify.source import LineChunks, pieces
from policies.ground.canonical import b64, unb64
from policies.ground.process import secret_file
from policies.ground.process.api_client import ControlApiClient
from policies.trail import checkpoint
from policies.trail.findings import Finding, Reason
from policies.trail.merkle_tree import Frontier
from policies.trail.proofs.signed_note import ED25519, VerifierKey
from policies.trail.verdict.outcome import Level, Outcome, Unusable
from policies.trail.walk.range_result import Source

FORMAT = "sluice-verify-state/1"
MAX_STATE = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class MonitorState:
    """The state that a run leaves: the log as verified up to `tree.size` entries. `keys` are the
    pinned public keys, `note` is the newest checkpoint, `sources` says where each enforcement
    point's chain of records ended. `missing` are entries without their opening for which no
    `redact` entry had been found yet."""

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
    def from_wire(cls, wire: Any) -> "MonitorState":
        """Parse a state file's JSON. Raises `ValueError`, `TypeError`, `LookupError` or
        `AttributeError` if `to_bytes` can't have written it."""
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


def read_state(path: Path) -> MonitorState | None:
    """Read the state file; return None if there is none yet. Raises `Unusable` if it can't be read:
    to begin without a state would mean to trust the service again."""
    try:
        with path.open("rb") as file:
            return MonitorState.from_wire(orjson.loads(file.read(MAX_STATE)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unusable(f"--state `{path}` can't be read: {error.strerror}") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise Unusable(
            f"--state `{path}` is not a state of this command: {error!s:.120}"
        ) from error


def write_state(path: Path, state: MonitorState) -> None:
    """Replace the state file atomically. Raises `Unusable` if that fails."""
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
    """Hold a lock on the state file, so that a second run on it is refused. Raises `Unusable` if
    another run holds the lock."""
    try:
        handle = secret_file.acquire(Path(f"{path}.lock"))
    except BlockingIOError as error:
        raise Unusable(f"--state `{path}` is in use by another run") from error
    except OSError as error:
        raise Unusable(f"--state `{path}` can't be locked: {error.strerror}") from error
    try:
        yield
    finally:
        os.close(handle)


EXPORT = "/v1/audit/export"
MOST_MISSING = 100_000


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """The options of a run: a client for the service, the path of the state file, and the keys,
    witnesses and checkpoints from the arguments."""

    api: ControlApiClient
    state: Path
    keys: Sequence[VerifierKey] = ()
    witnesses: Sequence[VerifierKey] = ()
    quorum: int | None = None
    known: Sequence[str] = ()
    progress: Progress = field(default_factory=Progress)


def monitor(options: MonitorOptions) -> Outcome:
    """Verify the service's new entries once. The state file is replaced only if there are no
    findings. Raises `Unusable` and `ServiceUnusable`."""
    with locked(options.state):
        before = read_state(options.state)
        first = 0 if before is None else before.tree.size
        pinned = list(options.keys)
        if before is not None:
            pinned += [VerifierKey("", ED25519, public) for public in before.keys]
        check_options = CheckOptions(
            pinned, options.witnesses, options.quorum, options.known, progress=options.progress,
            to_end=True,
        )  # fmt: skip
        compressed = {"Accept-Encoding": "gzip"}
        with options.api.stream(EXPORT, {"from": first}, compressed) as body:
            chunks = LineChunks(pieces(body), options.progress.advance)
            check = FileCheck(chunks, "the service's log", check_options)
            if before is not None and (found := _contradiction(check, before)):
                outcome = Outcome("the service's log", check.header.log, check.header.origin)
                outcome.first = outcome.size = check.header.first
                outcome.pinned = bool(pinned)
                outcome.add(found)
            else:
                outcome = _continued(check, before)
                outcome.earlier = first
                if not outcome.covered and before is not None and (before.note or not options.keys):
                    _base_on_earlier_checkpoint(outcome, before)
        options.progress.end()
        if outcome.valid:
            write_state(options.state, _state_after(check, before, pinned))
        return outcome


def _contradiction(check: FileCheck, before: MonitorState) -> Finding | None:
    """Return a finding if the log that the service shows now does not begin with the log that was
    verified before; None if it does. Raises `Unusable` if entries were removed before they could be
    verified."""
    header, size = check.header, before.tree.size
    if header.log != before.log:
        message = f"the service shows log `{header.log:.80}`, the last run saw `{before.log}`"
        return Finding(None, Reason.LOG_BEHIND_CHECKPOINT, message)
    if header.origin != before.origin:
        message = (
            f"the log continues as `{header.origin:.80}`, the last run saw `{before.origin}`; if "
            "its owner says why, begin a new --state"
        )
        return Finding(None, Reason.INCARNATION, message)
    if header.first < size:
        message = f"rolled back: the last run saw {size} entries, the log has {header.until} now"
        return Finding(header.until, Reason.LOG_BEHIND_CHECKPOINT, message)
    if header.first > size:
        raise Unusable(
            f"retention removed the entries from {size} to {header.first - 1} before they were "
            "verified; run more often, or begin a new --state"
        )
    if size and check.walk.tree != before.tree:
        message = f"fork: the first {size} entries are not those that the last run verified"
        return Finding(max(size - 1, 0), Reason.ROOT_MISMATCH, message)
    return None


def _continued(check: FileCheck, before: MonitorState | None) -> Outcome:
    if before is not None:
        check.walk.continue_from(before.last_leaf, before.last_ts, before.sources)
        for seq in before.missing:
            check.walk.erasures.missing(seq)
    outcome, candidates = check.run()
    if any(each.reason is Reason.FILE_TRUNCATED for each in outcome.findings):
        raise Unusable("the service's answer ended early; what arrived of it is not recorded")
    if candidates:
        message = f"{len(candidates)} ids occur twice among the new entries"
        outcome.add(Finding(None, Reason.DUPLICATE_ID, message))
    # An erasure during the answer removes openings before its `redact` entry can be in it. So a
    # missing opening is a finding only if the next run does not find that entry either.
    fresh = 0 if before is None else before.tree.size
    outcome.findings = [
        each
        for each in outcome.findings
        if each.reason is not Reason.OPENING_MISSING or (each.seq or 0) < fresh
    ]
    return outcome


def _base_on_earlier_checkpoint(outcome: Outcome, before: MonitorState) -> None:
    """Base the outcome on the checkpoint of an earlier run: nothing was signed since, so that
    checkpoint still proves the entries that it covers. If there is none, the log may not have been
    signed at all yet, and its missing checkpoint is not a finding."""
    outcome.findings = [
        each for each in outcome.findings if each.reason is not Reason.CHECKPOINT_MISSING
    ]
    if not before.note:
        return
    outcome.covered = checkpoint.unverified(before.note).size
    outcome.signer = ""
    outcome.covered_how = "the checkpoint that an earlier run verified"
    outcome.level = Level.SIGNED


def _state_after(
    check: FileCheck, before: MonitorState | None, pinned: Sequence[VerifierKey]
) -> MonitorState:
    walk, header = check.walk, check.header
    keys = dict.fromkeys(key.public for key in pinned)
    if not keys:
        # The first run without --key trusts the keys that the service claims, as SSH does.
        keys = dict.fromkeys(check.keys.claimed[-1:])
    note = check.newest_note or ("" if before is None else before.note)
    return MonitorState(
        header.log, header.origin, Frontier(walk.tree.size, list(walk.tree.hashes)),
        walk.last_leaf, walk.last_ts, tuple(keys), note, walk.sources,
        tuple(walk.erasures.pending(MOST_MISSING)),
    )  # fmt: skip
