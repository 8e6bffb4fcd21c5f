"""Members and parameters whose reader at the data source is more lenient than JSON: one that
matches names whatever their case or punctuation, and takes the last of two. A name that is meant
only to such a reader is refused. Pure.
"""

import re
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes

from policies.ground.errors import Malformed

_LONGEST = 256

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def read_members(body: dict[str, Any], *names: str) -> list[Any]:
    """The values of members, None for absent ones."""
    wanted = _wanted(names)
    for key in body:
        if key not in names:
            _check(key, wanted)
    return [body.get(name) for name in names]


def read_parameters(query: str | None, *names: str) -> list[str | None]:
    """The values of parameters of a query, None for absent ones. A parameter that stands twice, or
    in a way that readers differ on, is refused."""
    found: dict[str, str] = {}
    wanted = _wanted(names)
    # To some readers a `;` ends a parameter as `&` does.
    if ";" in (query or ""):
        raise Malformed("the query can be read in two ways")
    for pair in (query or "").split("&"):
        name, _, text = pair.partition("=")
        name = _decoded(name)
        _check(name, wanted)
        if name in names:
            if name in found:
                raise Malformed(f"the query states `{name}` twice")
            found[name] = _decoded(text)
    return [found.get(name) for name in names]


@lru_cache
def _wanted(names: tuple[str, ...]) -> dict[str, str]:
    """What is asked for stands in the source, so there are few of these."""
    return {_folded(name): name for name in names}


def _check(key: str, wanted: dict[str, str]) -> None:
    if len(key) > _LONGEST:
        # Folding takes a step for each character.
        raise Malformed(f"`{key[:64]}…` is longer than a name may be")
    known = wanted.get(_folded(key))
    if known is not None and known != key:
        raise Malformed(f"`{key[:64]}` may be read as `{known}`")


def _folded(name: str) -> str:
    # Case folding as Unicode has it: Go takes `ſ` for `s`, and the Kelvin sign for `k`.
    return "".join(filter(str.isalnum, name)).casefold()


def _decoded(text: str) -> str:
    if _BAD_ESCAPE.search(text):
        raise Malformed("the query holds a `%` that escapes nothing")
    try:
        return unquote_to_bytes(text.replace("+", " ")).decode()
    except UnicodeDecodeError:
        raise Malformed("the query holds an escape that is not UTF-8") from None
