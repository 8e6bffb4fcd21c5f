"""Reads members and parameters for data sources that are more lenient than JSON: they ignore case
and punctuation when they match names, and take the last of two. A name that only such a reader
would match is refused. Pure.
"""

from functools import lru_cache
from typing import Any

from policies.ground.errors import Malformed
from sidecar.protocols.shared.escapes import decode_escapes

_MAX_NAME = 256


def read_members(body: dict[str, Any], *names: str) -> list[Any]:
    """The values of these members, None for absent ones. Raises `Malformed` for a name that is too
    long, or that only a lenient reader would take for one of them."""
    wanted = _by_folded(names)
    for key in body:
        # Any other member passes, unless a lenient reader would take it for a wanted one.
        if key not in names:
            _check(key, wanted)
    return [body.get(name) for name in names]


def read_parameters(query: str | None, *names: str) -> list[str | None]:
    """The values of these query parameters, None for absent ones. Raises `Malformed` for one that
    occurs twice, or that readers understand differently."""
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
