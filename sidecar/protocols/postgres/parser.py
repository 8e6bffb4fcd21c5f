"""Parses SQL into PostgreSQL's own parse tree, by libpg_query, the grammar of PostgreSQL 18.

The library comes in the wheel of `postgast`. Its own decoder stops at 100 levels, so this module
calls the same C function through ctypes and decodes the tree as JSON.

libpg_query writes the tree by recursion that nothing bounds, and its lexer takes quadratic time for
long runs of operator characters. A text that could end the process, or hold it up, is refused
before it gets there.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from sidecar.http.grpc.wire import read_varint
from sidecar.protocols.postgres.nesting import MAX_DEPTH, nesting_of

MAX_TEXT = 1 << 20
"""The largest text, in bytes of UTF-8."""
MAX_TREE = 4 << 20
"""The largest tree, in bytes of JSON: about 45,000 constants."""

# A text of this size, in bytes, is never too deep for a thread of 1 MiB, and its longest run of
# operator characters takes the lexer 3 ms.
_SHORT = 2000
_TOO_DEEP = "the text nests expressions too deeply: some hundred levels can be read"
# Each nested construct begins or continues with one of these characters or words.
_NESTING_CHARACTERS = b"-+*/<>=~!@#%^&|`?:(["
_NESTING_WORDS = (
    b"join", b"collate", b"at", b"is", b"notnull", b"union", b"except", b"intersect", b"like",
    b"similar", b"between", b"in", b"operator", b"not", b"case", b"overlaps",
)  # fmt: skip
_OPERATOR_CHARACTERS = b"-+*/<>=~!@#%^&|`?"
_OPERATORS_ALIKE = bytes(43 if code in _OPERATOR_CHARACTERS else code for code in range(256))
_LONG_RUN = b"+" * 64
_OPERATOR_RUN = re.compile(rb"[-+*/<>=~!@#%^&|`?]{64,}")
_MAX_OPERATOR_WORK = 4_000_000
"""The largest sum of the squares of the lengths of such runs: about 20 ms in the lexer."""
_MAX_TOKENS_SIZE = 1 << 19
"""The largest answer of the lexer, in bytes: about 45,000 tokens."""
_START = 0x08


class Unreadable(Exception):
    """the text can't be read as SQL. The message is the reason; `position` is the character,
    counted from 1, where the grammar stopped, and 0 if that is unknown"""

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


class ParsedText(NamedTuple):
    """A text of any number of statements, parsed."""

    data: bytes
    """The text in UTF-8, to which the tree's locations refer."""
    statements: list[dict[str, Any]]
    """libpg_query's `RawStmt` nodes: `stmt`, `stmt_location`, `stmt_len`. A member that has its
    default (0, false, empty) is missing, as everywhere in the tree."""


class _Error(ctypes.Structure):
    _fields_ = (
        ("message", ctypes.c_char_p),
        ("funcname", ctypes.c_char_p),
        ("filename", ctypes.c_char_p),
        ("lineno", ctypes.c_int),
        ("cursorpos", ctypes.c_int),
        ("context", ctypes.c_char_p),
    )


class _ParseResult(ctypes.Structure):
    _fields_ = (
        ("parse_tree", ctypes.c_char_p),
        ("stderr_buffer", ctypes.c_char_p),
        ("error", ctypes.POINTER(_Error)),
    )


class _Buffer(ctypes.Structure):
    # Not `c_char_p`: it would end at the first NUL.
    _fields_ = (("len", ctypes.c_size_t), ("data", ctypes.c_void_p))


class _ScanResult(ctypes.Structure):
    _fields_ = (
        ("tokens", _Buffer),
        ("stderr_buffer", ctypes.c_char_p),
        ("error", ctypes.POINTER(_Error)),
    )


class _FingerprintResult(ctypes.Structure):
    _fields_ = (
        ("fingerprint", ctypes.c_uint64),
        ("fingerprint_str", ctypes.c_char_p),
        ("stderr_buffer", ctypes.c_char_p),
        ("error", ctypes.POINTER(_Error)),
    )


def parse(text: str) -> ParsedText:
    """Parse a text of any number of statements. Takes up to 0.5 s for the costliest texts within
    the limits, and 25 µs for a short one. Raises `Unreadable`."""
    data = _encode(text)
    _refuse_costly(data)
    library = _library()
    result = library.pg_query_parse(data)
    try:
        if result.error:
            raise _unreadable(result.error.contents)
        tree: bytes = result.parse_tree
    finally:
        library.pg_query_free_parse_result(result)
    if len(tree) > MAX_TREE:
        raise Unreadable("the text has too many expressions: send it in several statements")
    try:
        decoded = orjson.loads(tree)
    except orjson.JSONDecodeError:
        # Its one cause in the output of libpg_query: more than 1,024 levels of JSON.
        raise Unreadable(_TOO_DEEP) from None
    statements: list[dict[str, Any]] = decoded.get("stmts", [])
    return ParsedText(data, statements)


def fingerprint(text: str) -> str:
    """Return libpg_query's fingerprint of a text that `parse` has accepted: 16 hexadecimal digits,
    the same for texts that differ in constants only. Raises `Unreadable`."""
    library = _library()
    result = library.pg_query_fingerprint(text.encode())
    try:
        if result.error:
            raise _unreadable(result.error.contents)
        digits: bytes = result.fingerprint_str
    finally:
        library.pg_query_free_fingerprint_result(result)
    return digits.decode()


def _encode(text: str) -> bytes:
    if len(text) > MAX_TEXT:
        raise Unreadable(f"the text is larger than {MAX_TEXT:,} bytes")
    if "\0" in text:
        raise Unreadable("the text contains a NUL")
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise Unreadable("the text is not valid Unicode") from None
    if len(data) > MAX_TEXT:
        raise Unreadable(f"the text is larger than {MAX_TEXT:,} bytes")
    return data


def _refuse_costly(data: bytes) -> None:
    """Raise `Unreadable` for a text that libpg_query can't parse within this thread's stack, or not
    in linear time."""
    if len(data) <= _SHORT:
        return
    # A search for a fixed text is many times as fast as one by the expression.
    if _LONG_RUN in data.translate(_OPERATORS_ALIKE):
        work = sum((run.end() - run.start()) ** 2 for run in _OPERATOR_RUN.finditer(data))
        if work > _MAX_OPERATOR_WORK:
            raise Unreadable("the text has too long a run of operator characters")
    if _may_nest(data) > MAX_DEPTH and nesting_of(tokens(data)) > MAX_DEPTH:
        raise Unreadable(_TOO_DEEP)


def _may_nest(data: bytes) -> int:
    """Return how often a text has what nests, in literals and names too: never too few."""
    count = len(data) - len(data.translate(None, _NESTING_CHARACTERS))
    if count > MAX_DEPTH:
        return count
    lower = data.lower()
    return count + sum(map(lower.count, _NESTING_WORDS))


def tokens(data: bytes) -> Iterator[bytes]:
    """Yield the tokens of a text as the grammar's own lexer finds them, in lower case."""
    library = _library()
    result = library.pg_query_scan(data)
    try:
        if result.error:
            raise _unreadable(result.error.contents)
        if result.tokens.len > _MAX_TOKENS_SIZE:
            raise Unreadable("the text has too many words: send it in several statements")
        encoded = ctypes.string_at(result.tokens.data, result.tokens.len)
    finally:
        library.pg_query_free_scan_result(result)
    return _read_tokens(encoded, data.lower())


def _read_tokens(encoded: bytes, lower: bytes) -> Iterator[bytes]:
    """Yield the texts of the tokens in libpg_query's `ScanResult`. Read by hand: the classes for it
    take 0.15 s to import, and this is all that is needed of them."""
    # Field 1 is the version. Each field 2 is a token, whose first fields are its start, which is
    # left out if it is 0, and its end.
    _, at = read_varint(encoded, 1, len(encoded))
    while at < len(encoded):
        size, begin = read_varint(encoded, at + 1, len(encoded))
        at = begin + size
        start = 0
        if encoded[begin] == _START:
            start, begin = read_varint(encoded, begin + 1, at)
        end, _ = read_varint(encoded, begin + 1, at)
        yield lower[start:end]


def _unreadable(error: _Error) -> Unreadable:
    reason = (error.message or b"unknown error").decode("utf-8", "replace")
    # It counts characters, although the locations in trees count bytes.
    return Unreadable(reason, max(error.cursorpos, 0))


@cache
def _library() -> ctypes.CDLL:
    """Return libpg_query, with the types of its functions declared. Raises `ModuleNotFoundError` if
    `postgast` is not installed."""
    found = find_spec("postgast")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'postgast'", name="postgast")
    library = ctypes.CDLL(str(Path(found.origin).with_name("libpg_query.so")))
    for name, result in (
        ("parse", _ParseResult),
        ("scan", _ScanResult),
        ("fingerprint", _FingerprintResult),
    ):
        call = library[f"pg_query_{name}"]
        call.argtypes, call.restype = (ctypes.c_char_p,), result
        setattr(library, f"pg_query_{name}", call)
        free = library[f"pg_query_free_{name}_result"]
        free.argtypes, free.restype = (result,), None
        setattr(library, f"pg_query_free_{name}_result", free)
    return library
