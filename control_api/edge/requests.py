"""Defines the base class of all requests, and the types of their fields: identifiers, times, flags,
`If-Match`, `Idempotency-Key` (`CONTRACT.md`, Requests).

A request model validates a request and is also the source of its description. Its fields come from
the path, the query, a header or the body; the route decides which (`control_api/edge/route.py`).

`Idempotency-Key` is for requests that create an object whose secret is shown once. The object's id
is derived from the header. A repeated request would therefore create the same id, and the database
itself refuses it, whichever process it reaches and however much later. The response to the repeated
request can't show the secret again, so it is a conflict.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)

from control_api.edge.answers import SortKey, read_cursor
from control_api.edge.field_descriptions import says
from policies.ground.canonical import MAX_IDENTIFIER, identifier_fault, rfc3339
from policies.ground.errors import Conflict, invalid

# At most 15 digits: a longer number stays text and is refused, without the cost of converting it.
_DIGITS = re.compile(r"-?[0-9]{1,15}\Z")


class RequestModel(BaseModel):
    """Base of the request models: strict types, no unknown fields, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    example: ClassVar[dict[str, Any]] = {}
    """An example body, shown in `/docs`."""
    in_query: ClassVar[frozenset[str]] = frozenset()
    """Fields taken from the query although the method has a body."""
    in_header: ClassVar[Mapping[str, str]] = {}
    """Fields taken from a header, each with the header's name."""
    unique_keys: ClassVar[bool] = True
    """True if a body with a duplicate key is refused."""
    decoded_later: ClassVar[bool] = False
    """True if the body may be so large that decoding it would hold up the event loop. The operation
    is then given an `UndecodedRequest`, and has it decoded in another process."""
    shown: ClassVar[type | None] = None
    """The response type that shows the object written by a `PUT`, if the body of the `PUT` may hold
    all of that type's members (`put_back`)."""

    @classmethod
    def from_known_bytes(cls, body: bytes) -> "RequestModel | None":  # noqa: ARG003  # subclasses use it
        """Read the request from the bytes of a JSON body without decoding it fully: a fast path for
        bodies that our own sidecars write.

        Return None if the bytes do not have the exact form that this expects; the body is then
        decoded as usual.
        """
        return None

    @classmethod
    def read(cls, values: dict[str, Any]) -> Any:
        """Validate the fields' values and return the request. Raise `Invalid` with all complaints
        at once."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise invalid(complaints(error), "request") from None


class UndecodedRequest(NamedTuple):
    """A request whose body is not decoded yet. `fields` are the values from the path and the query;
    they are not validated yet either."""

    fields: Mapping[str, str]
    body: bytes


def shown_members(request_type: type[RequestModel]) -> frozenset[str]:
    """Return the names of the members that a `GET` shows of the object which this request
    writes."""
    shown: Any = request_type.shown
    return frozenset(() if shown is None else (each.name for each in fields(shown)))


def put_back(
    request_type: type[RequestModel], body: dict[str, Any], path: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """Drop the members of the body that a `GET` shows and that no request can set. Return the
    remaining body, and a complaint for each member that contradicts the path.

    INVARIANT: what a `GET` returned can be sent back in a `PUT`. What the service keeps (times,
    versions, counts) is ignored: it may have changed since.
    """
    members = shown_members(request_type)
    if not members:
        return body, []
    complaints = [
        f"{name}: must be the path's, `{value}`"
        for name, value in path.items()
        if name in members and body.get(name, value) != value
    ]
    settable = {field.alias or name for name, field in request_type.model_fields.items()}
    left_out = members - (settable - path.keys())
    return {name: value for name, value in body.items() if name not in left_out}, complaints


class EmptyRequest(RequestModel):
    """A request without fields."""


def _identifier(text: str) -> str:
    if fault := identifier_fault(text):
        raise ValueError(fault)
    return text


def _query_integer(value: object) -> object:
    """Turn digits in a query into an integer. Return any other value unchanged, so that the strict
    type refuses it."""
    return int(value) if isinstance(value, str) and _DIGITS.match(value) else value


def json_integer(value: object) -> object:
    """Turn `1.0` into an integer. In JSON it is one (JSON Schema Validation, section 6.1.1), and
    some clients write all their numbers that way."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Identifier = Annotated[
    str,
    AfterValidator(_identifier),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_IDENTIFIER,
            "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$",
        }
    ),
]
"""An identifier: 1 to 256 characters without control characters, stored byte for byte."""

# At most 32 roles: a log entry holds at most 64 KiB, and the record of a decision based on such a
# list contains the whole list.
Roles = Annotated[list[Identifier], Field(max_length=32)]


def _flag(value: object) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    if value not in ("true", "false"):
        raise ValueError("must be `true` or `false`")
    return value == "true"


def read_flag(value: object, name: str) -> bool:
    """Read the value of a flag in a query: `true` or `false`. None, for a flag that is absent,
    counts as false. Raise `Invalid` for anything else."""
    try:
        return _flag(value)
    except ValueError as error:
        raise invalid([f"{name}: {error}"], "query") from None


Flag = Annotated[bool, BeforeValidator(_flag)]
"""A flag in a query: `true` or `false`."""
QueryInt = Annotated[int, BeforeValidator(_query_integer)]
# The bounds come before the validator, or the API's description would not have them.
LogSize = Annotated[int, Field(ge=0, le=10**15 - 1), BeforeValidator(_query_integer)]
"""A number of log entries in a query, of at most 15 digits, which is as many as `_query_integer`
reads."""
MostEntries = Annotated[int, Field(ge=1, le=10**15 - 1), BeforeValidator(_query_integer)]
"""The most log entries to return, as a number in a query."""
Text = Annotated[str, Field(max_length=4096, pattern="^[^\\u0000]*$")]
"""Text for people, such as a name or a description. It contains no NUL, because PostgreSQL can't
store it."""

Reason = Annotated[str, Field(min_length=1, max_length=1024, pattern="^[^\\u0000]*$")]
"""The reason for a change of the log. It is short because the log keeps it forever."""

KEPT_REASON = says("Why. The log keeps it forever: nothing personal.")


class ListRequest(RequestModel):
    """A request for one page of a list. `limit` is the most rows of the page, and `cursor` says
    where it begins."""

    limit: QueryInt = Field(100, ge=1, le=1000, description="The most rows to return.")
    cursor: str | None = Field(
        None,
        max_length=1024,
        description="Where to continue; taken from the previous page's `Link`.",
    )

    def after(self, *types: type) -> SortKey | None:
        """Return the sort key after which the list continues, or None for the first page. Raise
        `Invalid` if the cursor was not made by this API."""
        return None if self.cursor is None else read_cursor(self.cursor, types)

    def seq(self) -> int | None:
        """Return the number after which the list continues, for lists whose sort key is a single
        number. None means the first page."""
        key = self.after(int)
        return None if key is None else int(key[0])


def complaints(error: ValidationError) -> list[str]:
    """Write one line per invalid field: its path in the request, and what is wrong."""
    lines = []
    # Leave out the values: one may be a secret that was sent in the wrong field.
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        where = ".".join(str(part) for part in fault["loc"]) or "body"
        lines.append(f"{where}: {_words(fault['type'], fault['msg'])}")
    return lines


def _words(kind: str, message: str) -> str:
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return "is not a known field"
    text = message.removeprefix("Value error, ").removeprefix("Input ")
    return text[:1].lower() + text[1:]


# RFC 3339, section 5.6. The log itself always writes six fraction digits and `Z`. Without `re.A`,
# `\d` would match digits of other scripts too.
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)\Z", re.A
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def log_time(text: str) -> str:
    """Rewrite an RFC 3339 time in the form that the log uses, cut to microseconds. Raise
    `ValueError` if the text is not such a time."""
    try:
        # `fromisoformat` alone also takes dates, weeks, and times without an offset.
        if _TIMESTAMP.match(text) is None:
            raise ValueError
        moment = datetime.fromisoformat(text.upper())
        # In integers: `timestamp()` is a float, which can be off by a microsecond.
        return rfc3339((moment - _EPOCH) // timedelta(microseconds=1))
    except (ValueError, OverflowError):
        raise ValueError(f"must be an RFC 3339 time, such as `{rfc3339(0)}`") from None


Time = Annotated[str, AfterValidator(log_time), Field(json_schema_extra={"format": "date-time"})]


# One or several entity tags, or `*` (RFC 9110, sections 8.8.3 and 13.1.1).
_TAG = r'(?:W/)?"[!#-~]*"'
TAGS = rf"^(?:\*|{_TAG}(?:[ \t]*,[ \t]*{_TAG})*)$"


def _tags(text: str) -> str:
    if not re.fullmatch(TAGS, text):
        raise ValueError('must be a version between quotes, such as "3", or several, or `*`')
    return text


IfMatch = Annotated[str, AfterValidator(_tags)]


def if_match_holds(if_match: str | None, version: object) -> bool:
    """Return whether the `If-Match` precondition holds for this version. A request without the
    header always passes."""
    # RFC 9110, section 13.1.1, asks for strong comparison: a weak tag never matches.
    return if_match in (None, "*") or f'"{version}"' in re.findall(_TAG, if_match or "")


IDEMPOTENCY_HEADER = "Idempotency-Key"
_IDEMPOTENCY_PREFIX = b"sluice/idempotency/v1\0"

IdempotencyKey = Annotated[
    str,
    Field(
        min_length=16,
        max_length=128,
        pattern="^[!-~]*$",
        description="Random text of your own. A second request with it creates nothing and is "
        "answered 409.",
        json_schema_extra={"examples": ["0b1b7c5e-5e9a-4f0e-9d58-3f1c2a7e6b11"]},
    ),
]


def id_entropy(key: str | None, tenant_id: str, entropy: Callable[[int], bytes]) -> bytes:
    """Make the 16 bytes of a new object's id: derived from the idempotency key and the tenant, or
    random if there is no key."""
    if key is None:
        return entropy(16)
    tenant = tenant_id.encode()
    named = _IDEMPOTENCY_PREFIX + len(tenant).to_bytes(4, "big") + tenant + key.encode()
    return hashlib.sha256(named).digest()[:16]


class Repeated(Conflict):
    """this request was carried out before"""

    def __init__(self, what: str, created: str) -> None:
        super().__init__(f"this request was carried out before: it created the {what} `{created}`")
        self.created = created
