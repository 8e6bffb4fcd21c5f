"""Checks many lines in our services' fixed byte form (`known_lines`) at once, column by column: one
check of a column over a thousand lines costs a fraction of a thousand checks. Knows nothing of the
lines before the block.

Each function says if all lines are valid. Which line is not, only the full check tells.
"""

import hashlib
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from functools import lru_cache

from policies.ground.canonical import NotCanonical, micros
from policies.trail.commitment import commitments
from policies.trail.record import MAX_ENTRY
from policies.trail.walk.known_lines import Columns, Row, cited_by

_sha256 = hashlib.sha256
_HASH = 32
_PADDED = 33  # a hash of 32 bytes and a zero byte fill a multiple of three, as base64 wants


def leaf_hashes(raws: Sequence[bytes]) -> list[bytes]:
    return [_sha256(b"\0" + raw).digest() for raw in raws]


def core_hashes(columns: Columns) -> list[bytes]:
    """Return the hash of each line's record as it was spooled; empty for a line without `src`."""
    # The core is the entry without its place, whose four members are left out. As `core_hash`, but
    # without joining the core before it is joined with what precedes it.
    return [
        _sha256(
            b'audit/src/v1\0%b%b%b,%b%b,"v":1}'
            % (
                (len(head) + len(masked) + len(pub) + len(src) + 8).to_bytes(4, "big"),
                head,
                masked,
                pub,
                src,
            )
        ).digest()
        if src
        else b""
        for head, masked, pub, src in zip(
            columns.head, columns.masked, columns.pub, columns.src, strict=True
        )
    ]


def are_base64_of(hashes: Sequence[bytes], texts: Sequence[bytes]) -> bool:
    """Return whether `texts` are the base64 of `hashes`, one by one, each without its last
    character, `=`."""
    # With a zero byte after each hash, the base64 of all is theirs one after another: `A` stands
    # where each has its `=`.
    return b2a_base64(b"\0".join(hashes), newline=False) == b"A".join(texts) + b"="


def _decode_all(texts: Sequence[bytes]) -> bytes | None:
    """Decode many hashes from base64 that lacks its last character; a zero byte follows each in the
    result. None if one of them is not canonical base64."""
    try:
        hashes = a2b_base64(b"A".join(texts) + b"A")
    except ValueError:
        return None
    # The decoder skips characters outside the alphabet, so the length gives them away. The bits
    # that the last character of a hash has too many make its zero byte another.
    good = len(hashes) == _PADDED * len(texts) and not any(hashes[_HASH::_PADDED])
    return hashes if good else None


def openings_hold(
    path: str, cms: Sequence[bytes], salts: Sequence[bytes], values: Sequence[bytes]
) -> bool:
    """Return whether the openings of `path` match their commitments, line by line. `cms` are the
    commitments, `salts` and `values` the openings."""
    if not cms:
        return True
    keys = _decode_all(salts)
    return keys is not None and are_base64_of(commitments(path, keys, _PADDED, values), cms)


def all_opened(columns: Columns) -> bool:
    """Return whether each line has exactly the openings of its commitments, and they match."""
    users = columns.user_id_cm, columns.user_id_salt, columns.user_id_value
    queries = columns.query_cm, columns.query_salt, columns.query_value
    parameters = columns.parameters_cm, columns.parameters_salt, columns.parameters_value
    digests = (
        columns.statement_digest_cm,
        columns.statement_digest_salt,
        columns.statement_digest_value,
    )
    return (
        all(columns.user_id_salt)
        and openings_hold("user_id", *users)
        and _opened_where_there("query", *queries)
        and _opened_where_there("parameters", *parameters)
        and _opened_where_there("statement_digest", *digests)
    )


def _opened_where_there(path: str, cms: Row, salts: Row, values: Row) -> bool:
    """Return whether just the lines that commit to `path` open it, and their openings match."""
    if [*map(bool, cms)] != [*map(bool, salts)]:
        return False
    return openings_hold(
        path, tuple(filter(None, cms)), tuple(filter(None, salts)), tuple(filter(None, values))
    )


def places_hold(columns: Columns, seq: int, log: bytes, ts: bytes) -> bool:
    """Return whether the lines belong to `log`, are numbered from `seq` on, and have times that
    never decrease and begin at `ts` or later."""
    return (
        set(columns.log) == {log}
        and " ".join(map(str, range(seq, seq + len(columns.seq)))).encode()
        == b" ".join(columns.seq)
        and columns.ts[0] >= ts
        and sorted(columns.ts) == list(columns.ts)
        and all(map(_is_second, set(columns.second)))
    )


def contents_hold(columns: Columns) -> bool:
    """Return whether no entry is too large, and the facts of each are canonical."""
    if max(map(len, columns.raw)) > MAX_ENTRY:
        return False
    return all(cited_by(facts) is not None for facts in set(columns.facts))


@lru_cache(maxsize=64)
def _is_second(text: bytes) -> bool:
    try:
        micros(f"{text.decode()}.000000Z")
    except (NotCanonical, UnicodeDecodeError):
        return False
    return True
