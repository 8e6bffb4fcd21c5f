"""The lines of an export file, a type for each kind. `coding` has their bytes."""

from typing import Any, NamedTuple, TypeAlias

FORMAT = "sluice-log/1"
MEDIA_TYPE = "application/vnd.sluice.log+ndjson"
SEPARATOR = b',"openings":'
"""The bytes between an entry and its openings, which begin behind the last such bytes of their
line. So no openings hold them."""
MAX_LINE = 16 * 1024 * 1024
"""The longest line, in bytes, without the line feed: an entry has at most 64 KiB, its openings at
most a request's 1 MiB, and a role's policies stay far below."""
MAX_OTHER = 1024 * 1024
"""The longest line that is parsed as a whole, in bytes: the header, and every line but entries,
documents and damaged rows. A parser needs up to 40 times a line's length, and a reader has no more
to go by than the line. A header of 1,000 keys with their endorsements takes half of it, a
checkpoint a quarter."""


class HeaderLine(NamedTuple):
    """The first line: the entries from `first` up to `until`, exclusive, of the log `log`, whose
    oldest kept entry was `first_kept`.

    `origin` is that of the log's newest checkpoints. `keys` are the keys that signed the log, the
    oldest first: `{"key": <verifier key>, "endorsement": …}`. `with_openings` is false if the
    openings were left out on request. `made_at` is a time as in an entry. `part` says that an end
    was asked for, so that what the log records later would not be in the file either. No key signs
    it: it may excuse nothing."""

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
    """The tree of the `size` entries before a file's first one, as the roots of its complete
    subtrees, from the largest to the smallest."""

    size: int
    hashes: list[bytes]


class EntryLine(NamedTuple):
    """An entry's stored bytes, and its openings as stored (`{}` if it has none). `openings` is None
    for all entries of a file that was made without openings."""

    entry: bytes
    openings: bytes | None


class DamagedLine(NamedTuple):
    """A row that an `EntryLine` can't hold, since its stored bytes have a line feed, are missing or
    too long, or have openings with a member `openings` inside. `entry` and `openings` are its
    bytes, None where there are none."""

    seq: int
    entry: bytes | None
    openings: bytes | None


class PolicyLine(NamedTuple):
    """A role's document; its SHA-256 is the digest that decisions cite."""

    document: bytes


class CheckpointLine(NamedTuple):
    """A signed note. Its size is the number of entries up to here, unless a `ProofLine` precedes
    it."""

    note: str


class ProofLine(NamedTuple):
    """The inclusion proof (RFC 9162, 2.1.3) of the file's last entry, in the tree of the checkpoint
    on the next line."""

    hashes: list[bytes]


class PurgeLine(NamedTuple):
    """The `purge` entry of the entries that retention removed before `first_kept`, if it is not
    among the file's entries: its stored bytes as text, and its inclusion proof in the tree of the
    last checkpoint before this line; None if that does not cover it."""

    entry: str
    proof: list[bytes] | None


class ErasureLine(NamedTuple):
    """A `redact` entry behind the file's end that erased openings of entries before it: its stored
    bytes as text, and its inclusion proof in the tree of the checkpoint that stands behind the
    `ProofLine`; None if that does not cover it."""

    entry: str
    proof: list[bytes] | None


class EndLine(NamedTuple):
    """The last line: the number of entries, damaged ones included, and the SHA-256 in hex of every
    byte before this line."""

    entries: int
    sha256: str


class TruncatedLine(NamedTuple):
    """Written in place of the end if the export could not continue."""

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
