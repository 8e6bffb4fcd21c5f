"""Reads query parameters and JSON members for data sources whose own parsers are lenient: some
ignore case and punctuation when they match names, and take the last of two values. A name that only
such a parser would match is refused."""

import re
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes

from policies.ground.errors import Malformed

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]").search
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})").search


def decode_escapes(text: str) -> str:
    """Return `text`, percent-decoded once. Raises `Malformed` for an escape that parsers treat
    differently."""
    # A lenient reader keeps a lone `%` as it is, a strict one refuses the request.
    if _BAD_ESCAPE(text):
        raise Malformed("the query has a `%` without two hex digits")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        # Strict UTF-8 has no overlong forms, so no second way to write a `/` or a dot.
        raise Malformed("the query has an escape that is not UTF-8") from None


_MAX_NAME = 256


def read_members(body: dict[str, Any], *names: str) -> list[Any]:
    """Return the values of the members `names` of `body`, None for absent ones. Raises `Malformed`
    for a key that is too long, or that only a lenient parser would take for one of them."""
    wanted = _by_folded(names)
    for key in body:
        # Any other member passes, unless a lenient reader would take it for a wanted one.
        if key not in names:
            _check(key, wanted)
    return [body.get(name) for name in names]


def read_parameters(query: str | None, *names: str) -> list[str | None]:
    """Return the values of the query parameters `names`, None for absent ones. Raises `Malformed`
    for a parameter that occurs twice, or that parsers understand differently."""
    found: dict[str, str] = {}
    wanted = _by_folded(names)
    # For some readers a `;` ends a parameter, like `&`.
    if ";" in (query or ""):
        raise Malformed("the query has a bare `;`, which some readers take for `&`: escape it")
    # The first `=` ends the name; a value may hold more of them.
    for pair in (query or "").split("&"):
        name, _, text = pair.partition("=")
        name = decode_escapes(name.replace("+", " "))
        _check(name, wanted)
        if name in names:
            if name in found:
                raise Malformed(f"the query has `{name}` twice")
            found[name] = decode_escapes(text.replace("+", " "))
    return [found.get(name) for name in names]


# Callers pass literal names, so the cache stays small.
@lru_cache
def _by_folded(names: tuple[str, ...]) -> dict[str, str]:
    return {_fold(name): name for name in names}


def _check(key: str, wanted: dict[str, str]) -> None:
    if len(key) > _MAX_NAME:
        # Folding takes a step for each character.
        raise Malformed(f"`{key[:64]}…` is longer than a name may be: {_MAX_NAME} characters")
    known = wanted.get(_fold(key))
    if known is not None and known != key:
        raise Malformed(f"some readers take `{key[:64]}` for `{known}`: write `{known}`")


def _fold(name: str) -> str:
    # Unicode case folding, as in Go's JSON reader: `ſ` matches `s`, and the Kelvin sign `k`.
    return "".join(filter(str.isalnum, name)).casefold()


# Parameters of a request presigned with Signature Version 2. Version 4's begin with `x-amz-`.
_CREDENTIALS = frozenset(("signature", "awsaccesskeyid", "expires"))


def parse_query(query: str | None) -> dict[str, str]:
    """Return the query parameters with their values, decoded once; a name without `=` has the value
    "". Raises `Malformed` for a query that two parsers could understand differently, and for a
    presigned request."""
    found: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        name, _, value = (_decode(part) for part in pair.partition("="))
        if not name:
            raise Malformed("the query has a parameter without a name")
        if name in found:
            raise Malformed(f"the query has `{name[:64]}` twice")
        # With someone else's signature in the query, the data source would authenticate that signer
        # instead of the sidecar.
        if name.lower().startswith("x-amz-") or name.lower() in _CREDENTIALS:
            raise Malformed(
                f"the query carries AWS credentials in `{name[:64]}`: send the request unsigned, "
                "the sidecar signs it"
            )
        found[name] = value
    return found


def _decode(part: str) -> str:
    # Some readers take a bare `+` for a space, and a bare `;` for the end of a parameter.
    if "+" in part or ";" in part:
        raise Malformed("the query has a bare `+` or `;`")
    text = decode_escapes(part)
    if CONTROL(text):
        raise Malformed("the query has an escaped control character")
    return text
