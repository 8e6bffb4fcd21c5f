"""Reads from a check's head which request it asks about, in each of the protocols. What can't be
read becomes a fault of that request, which is then denied.

Pure. Knows header names; knows no key and no decision.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sidecar.doors.missing_body import PARTIAL_BODY
from sidecar.settings.doors import Door

Fields = Sequence[tuple[bytes, bytes]]

KEY = b"x-api-key"
_HOST = b"host"
_PARTIAL = b"x-envoy-auth-partial-body"
_ABSOLUTE = re.compile(r"https?://([A-Za-z0-9._~\[\]:-]+)(.*)", re.IGNORECASE | re.DOTALL).fullmatch


class Question(NamedTuple):
    """The request that a check asks about, without its body. `fields` have no key of ours."""

    method: str
    target: str
    fields: list[tuple[bytes, bytes]]
    fault: str = ""
    """Why the request can't be read."""
    partial: str = ""
    """Why the body in the check can't be used."""


ReadQuestion = Callable[[str, str, Fields], Question]
"""Takes the check's own method, what follows the door's name in its target, and its fields."""


def reader(door: Door, *, uses_host: bool) -> ReadQuestion:
    """How this door reads its checks. `uses_host` is whether `Host` names part of what is
    requested."""
    if door.protocol == "envoy_http":
        return _read_envoy
    family = "forwarded" if door.request_from == "forwarded" else "original"

    def read(_method: str, _rest: str, fields: Fields) -> Question:
        return _read_forwarded(family, fields, uses_host=uses_host)

    return read


def _read_envoy(method: str, rest: str, fields: Fields) -> Question:
    kept, flags = [], []
    for field in fields:
        name = field[0].lower()
        if name == _PARTIAL:
            flags.append(field[1].lower())
        elif name != KEY:
            kept.append(field)
    # Envoy says `false` of a whole body, and of every one that it sends. A client may have sent the
    # header too.
    partial = "" if flags and set(flags) == {b"false"} else PARTIAL_BODY
    return Question(method, rest, kept, "", partial)


def _read_forwarded(family: str, fields: Fields, *, uses_host: bool) -> Question:
    """The other family says nothing: the gateway overwrites one of them, and the client may send
    the other."""
    prefix = f"x-{family}-".encode()
    kept: list[tuple[bytes, bytes]] = []
    stated: dict[str, list[str]] = {}
    for field in fields:
        name = field[0].lower()
        if name.startswith(prefix):
            value = field[1].decode("latin-1")
            stated.setdefault(name[len(prefix) :].decode("latin-1"), []).append(value)
        # The check's `Host` names this sidecar.
        if name not in (KEY, _HOST):
            kept.append(field)
    methods, targets = stated.get("method", []), stated.get("uri", [])
    hosts = stated.get("host", [])
    uri = f"x-{family}-uri"
    if family == "original":
        targets, uri = [*targets, *stated.get("url", [])], f"{uri}` or `x-{family}-url"
    fault = ""
    if len(methods) != 1 or "," in methods[0]:
        fault = f"the check must have one header `x-{family}-method` with one method"
    elif len(targets) != 1:
        fault = f"the check must have exactly one header `{uri}`"
    if fault:
        return Question("", "", kept, fault)
    target = targets[0]
    if family == "original" and (found := _ABSOLUTE(target)) is not None:
        hosts, target = [found[1]], found[2]
        if not target.startswith("/"):
            # nginx writes the client's `Host` before the path, which `Host: a?` would hide.
            fault = f"`{uri}` has no path after the host"
    if uses_host and not hosts:
        fault = f"`x-{family}-host` is missing, and the host names part of what is requested"
    kept += [(_HOST, host.encode("latin-1")) for host in hosts]
    return Question(methods[0], target, kept, fault)
