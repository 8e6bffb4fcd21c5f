"""Reads the head of a check over HTTP: which door it is for, with which key, and which request it
asks about, in the format of each gateway. A head is read once for all checks that have the same
head.

If the checked request can't be read, that is noted as its fault, and the request is denied. Keeps
only the digest of the key, and verifies no key. Knows no decision.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from policies.ground.errors import Malformed
from policies.ground.keys import key_digest, presented_key
from sidecar.api.request_head import echoed_id
from sidecar.doors.judgement import PARTIAL_BODY, Judgement
from sidecar.http.headers import RequestHead
from sidecar.http.server.head_cache import HeadTemplate, head_template
from sidecar.http.server.request import HttpRequest
from sidecar.settings.sections import Door

Fields = Sequence[tuple[bytes, bytes]]

KEY = b"x-api-key"
_HOST_FIELD = b"host"
_PARTIAL = b"x-envoy-auth-partial-body"
_ABSOLUTE = re.compile(r"https?://([A-Za-z0-9._~\[\]:-]+)(.*)", re.IGNORECASE | re.DOTALL).fullmatch


class Question(NamedTuple):
    """The request that a check asks about, without its body. `fields` does not include the key for
    this door."""

    method: str
    target: str
    fields: list[tuple[bytes, bytes]]
    fault: str = ""
    """The reason why the request can't be read; empty if it can be read."""
    partial: str = ""
    """The reason why the body in the check can't be used; empty if it can be used."""


ReadQuestion = Callable[[str, str, Fields], Question]
"""A function that reads the request that a check asks about. It takes the check's own method, the
rest of its target after the door's name, and its fields."""


def question_reader(door: Door, *, uses_host: bool) -> ReadQuestion:
    """Return the function that reads the checks of this door. `uses_host` is True if `Host` is part
    of the name of the requested source."""
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
    # Envoy sends `false` with every whole body that it sends. A client may have sent the header
    # too, so all of its values count.
    partial = "" if flags and set(flags) == {b"false"} else PARTIAL_BODY
    return Question(method, rest, kept, "", partial)


def _read_forwarded(family: str, fields: Fields, *, uses_host: bool) -> Question:
    """Read the request from the header fields of one family, `x-forwarded-` or `x-original-`. The
    other family is ignored: the gateway overwrites only one of them, and the client may send the
    other."""
    prefix = f"x-{family}-".encode()
    kept: list[tuple[bytes, bytes]] = []
    stated: dict[str, list[str]] = {}
    for field in fields:
        name = field[0].lower()
        if name.startswith(prefix):
            value = field[1].decode("latin-1")
            stated.setdefault(name[len(prefix) :].decode("latin-1"), []).append(value)
        # The check's `Host` names this sidecar.
        if name not in (KEY, _HOST_FIELD):
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
    kept += [(_HOST_FIELD, host.encode("latin-1")) for host in hosts]
    return Question(methods[0], target, kept, fault)


PREFIX = "/v1/check/"
_ID, _LENGTH, _EXPECT, _TRACE = b"x-request-id", b"content-length", b"expect", b"traceparent"
_UNREAD = RequestHead({}, b"", None)


class HttpDoor(NamedTuple):
    """A check door on an HTTP port. `allow_lines` are the header lines that every ALLOW has besides
    those about the decision. `whole` is True if nothing may follow the door's name in the path."""

    judgement: Judgement
    read: ReadQuestion
    no_body: str
    allow_lines: bytes
    whole: bool


class CheckHead(NamedTuple):
    """The head of a check, read. It may be remembered, so it holds no credential."""

    door: HttpDoor | None
    key_digest: bytes | None
    request_id: str | None
    question: Question
    """The request that the check asks about, without its fields, which may hold credentials."""
    head: RequestHead | None
    """The header fields of the request that the check asks about; None if `template` has them."""
    template: HeadTemplate | None
    length: int
    waits_for_continue: bool
    traceparent: tuple[bytes, ...]


def read_head(request: HttpRequest, doors: dict[str, HttpDoor]) -> CheckHead:
    """Read the head of the check `request`, and let the connection remember it if other checks may
    have the same head."""
    door, rest = _door(request.target, doors)
    keys: list[str] = []
    ids: list[bytes] = []
    length, waits, traceparent = 0, False, []
    for name, value in request.fields:
        lower = name.lower()
        if lower == KEY:
            keys.append(value.decode("utf-8", "surrogateescape"))
        elif lower == _ID:
            ids.append(value)
        elif lower == _LENGTH:
            length = int(value)
        elif lower == _EXPECT:
            waits = value.lower() == b"100-continue"
        elif lower == _TRACE:
            traceparent.append(value)
    presented = presented_key(keys, ())
    question = Question("", "", [])
    head = _UNREAD
    if door is not None:
        question = door.read(request.method, rest, request.fields)
        try:
            head = door.judgement.head_of(question.fields)
        except Malformed as error:
            question = question._replace(fault=question.fault or error.message)
    read = CheckHead(
        door,
        key_digest(presented) if presented else None,
        echoed_id(ids[0].decode("latin-1")) if ids else None,
        question._replace(fields=[]),
        head,
        None,
        length,
        waits,
        tuple(traceparent),
    )
    _remember(request, read, head)
    return read


def _remember(request: HttpRequest, read: CheckHead, head: RequestHead) -> None:
    # A query may hold a credential, and a request id makes each head another one.
    question = read.question
    if read.door is None or question.fault or "?" in question.target or read.request_id is not None:
        return
    template = head_template(request.fields, head, request.raw_head) if request.raw_head else None
    if template is not None:
        request.remember(read._replace(head=None, template=template))


def _door(target: str, doors: dict[str, HttpDoor]) -> tuple[HttpDoor | None, str]:
    """Return the door that a target names, spelt exactly, and the rest of the target after the
    name. The door is None if there is no such door."""
    if not target.startswith(PREFIX):
        return None, ""
    end = len(PREFIX)
    while end < len(target) and target[end] not in "/?":
        end += 1
    door, rest = doors.get(target[len(PREFIX) : end]), target[end:]
    if door is not None and door.whole and rest:
        return None, ""
    return door, rest
