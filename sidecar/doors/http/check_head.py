"""Reads the head of a check, once for all checks that have the same one: which door it is for, with
which key, and what it asks about. Keeps only the digest of the key, and checks none."""

from typing import NamedTuple

from policies.ground.errors import Malformed
from policies.ground.keys import key_digest, presented_key
from sidecar.api.request_head import echoed_id
from sidecar.doors.http.question import KEY, Question, ReadQuestion
from sidecar.doors.judgement import Judgement
from sidecar.http.headers import RequestHead
from sidecar.http.server.head_cache import HeadTemplate, head_template
from sidecar.http.server.request import HttpRequest

PREFIX = "/v1/check/"
_ID, _LENGTH, _EXPECT, _TRACE = b"x-request-id", b"content-length", b"expect", b"traceparent"
_UNREAD = RequestHead({}, b"", None)


class HttpDoor(NamedTuple):
    """A door on an HTTP port. `allow_lines` are the header lines of every ALLOW besides those about
    the decision; `whole` is whether nothing may follow its name in the path."""

    judgement: Judgement
    read: ReadQuestion
    no_body: str
    allow_lines: bytes
    whole: bool


class CheckHead(NamedTuple):
    """A head that was read. It may be remembered, and so holds no credential."""

    door: HttpDoor | None
    key_digest: bytes | None
    request_id: str | None
    question: Question
    """Without its fields, which hold credentials."""
    head: RequestHead | None
    """The fields of the request in question; None if `template` has them."""
    template: HeadTemplate | None
    length: int
    waits_for_continue: bool
    traceparent: tuple[bytes, ...]


def read_head(request: HttpRequest, doors: dict[str, HttpDoor]) -> CheckHead:
    """The head of `request`, which has them remember it if other checks may have the same."""
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
    """The door that a target names, as it is spelt, and what follows the name."""
    if not target.startswith(PREFIX):
        return None, ""
    end = len(PREFIX)
    while end < len(target) and target[end] not in "/?":
        end += 1
    door, rest = doors.get(target[len(PREFIX) : end]), target[end:]
    if door is not None and door.whole and rest:
        return None, ""
    return door, rest
