"""The lines of an export file, with a type for each kind. `coding` encodes and parses them."""

from typing import Any, NamedTuple, TypeAlias

FORMAT = "sluice-log/1"
MEDIA_TYPE = "application/vnd.sluice.log+ndjson"
SEPARATOR = b',"openings":'
"""The bytes between an entry and its openings in a line. The openings begin behind the last
occurrence of these bytes, so openings that hold them need a `DamagedLine`."""
MAX_LINE = 16 * 1024 * 1024
"""The limit on a line, in bytes without the line feed: an entry has at most 64 KiB, its openings at
most a request's 1 MiB, and a role's policies stay far below."""
MAX_OTHER = 1024 * 1024
"""The limit, in bytes, on a line that is parsed as a whole: the header, and every line but entries,
documents and damaged rows. A parser needs up to 40 times a line's length in memory, and only the
line's length tells a reader how much that will be. A header of 1,000 keys with their endorsements
takes half of the limit, a checkpoint a quarter."""


class HeaderLine(NamedTuple):
    """The first line, which says what the file holds: the entries from `first` up to `until`,
    exclusive, of the log `log`, whose oldest kept entry was `first_kept`.

    `origin` is that of the log's newest checkpoints. `keys` are the keys that signed the log, the
    oldest first: `{"key": <verifier key>, "endorsement": …}`. `with_openings` is false if the
    openings were left out on request. `made_at` is a time as in an entry. `part` is true if the
    export was asked to end at `until`, so that whatever the log recorded later is not in the file.
    No key signs the header, so a verifier may excuse nothing because of it.
    """

    log: str
    origin: str
    keys: list[dict[str, Any]]
    first_kept: int
    first: int
    until: int
    with_openings: bool
    made_at: str
    part: bool = False


class FrontierLine(NamedTuple):
    """The Merkle tree of the `size` entries before the file's first one, as the root hashes of its
    complete subtrees, from the largest to the smallest."""

    size: int
    hashes: list[bytes]


class EntryLine(NamedTuple):
    """The line of an entry: its stored bytes, and its openings as stored (`{}` if it has none).
    `openings` is None for all entries of a file that was made without openings."""

    entry: bytes
    openings: bytes | None


class DamagedLine(NamedTuple):
    """A stored row that can't be written as an `EntryLine`, since its bytes have a line feed, are
    missing or too long, or have openings with a member `openings` inside. `entry` and `openings`
    are the row's bytes, None where there are none."""

    seq: int
    entry: bytes | None
    openings: bytes | None


class PolicyLine(NamedTuple):
    """The document of a role's policies, in its stored bytes. Its SHA-256 is the digest that
    decisions cite."""

    document: bytes


class CheckpointLine(NamedTuple):
    """A checkpoint, as a signed note. Its size is the number of the log's entries up to this line,
    unless a `ProofLine` precedes it."""

    note: str


class ProofLine(NamedTuple):
    """The inclusion proof (RFC 9162, 2.1.3) of the file's last entry, in the tree of the checkpoint
    on the next line."""

    hashes: list[bytes]


class PurgeLine(NamedTuple):
    """The `purge` entry by which retention removed the entries before `first_kept`, if it is not
    among the file's own entries. `entry` is its stored bytes as text. `proof` is its inclusion
    proof in the tree of the last checkpoint before this line; None if that checkpoint does not
    cover it."""

    entry: str
    proof: list[bytes] | None


class ErasureLine(NamedTuple):
    """A `redact` entry beyond the file's range that erased openings of entries in the file. `entry`
    is its stored bytes as text. `proof` is its inclusion proof in the tree of the checkpoint that
    follows the `ProofLine`; None if that checkpoint does not cover it."""

    entry: str
    proof: list[bytes] | None


class EndLine(NamedTuple):
    """The last line of a complete file: the number of entries, damaged ones included, and the
    SHA-256 in hex of every byte before this line."""

    entries: int
    sha256: str


class TruncatedLine(NamedTuple):
    """The last line, in place of an `EndLine`, of an export that could not continue."""

    reason: str


Line: TypeAlias = (
    HeaderLine
    | FrontierLine
    | EntryLine
    | DamagedLine
    | PolicyLine
    | CheckpointLine
    | ProofLine
    | PurgeLine
    | ErasureLine
    | EndLine
    | TruncatedLine
)
