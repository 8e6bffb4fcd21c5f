"""What a request may say: one flat declaration per operation, validated and described from the same
source (contract, section 1).

A declaration is a pydantic model whose fields come from the path, the query, a header or the body;
where from follows from the route (`control_api/http/route.py`). Knows nothing of HTTP's bytes and
nothing of what is done with what was asked.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)

from control_api.responses.paging import Place, read_cursor
from policies.ground.errors import invalid
from policies.ground.json_body import MAX_IDENTIFIER, identifier_fault

_WHOLE = re.compile(r"-?[0-9]{1,15}\Z")


class RequestModel(BaseModel):
    """Base of the declarations: strict types, no unknown fields, never changed once read."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    example: ClassVar[dict[str, Any]] = {}
    """A body that a reader of `/docs` can copy."""
    in_query: ClassVar[frozenset[str]] = frozenset()
    """Fields that come from the query although the method carries a body."""
    in_header: ClassVar[Mapping[str, str]] = {}
    """Fields that come from a header, and its name."""
    unique: ClassVar[bool] = True
    """Whether a body with a key twice is refused."""

    @classmethod
    def by_bytes(cls, body: bytes) -> "RequestModel | None":  # noqa: ARG003  # of those that can tell
        """What a JSON body in UTF-8 plainly asks, told without decoding it; None where it is to be
        read as every other is."""
        return None

    @classmethod
    def read(cls, values: dict[str, Any]) -> Any:
        """`values` as the declaration says, or `Invalid` with every complaint."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise invalid(complaints(error), "request") from None


class EmptyRequest(RequestModel):
    """Nothing is asked but the path itself."""


def _identifier(text: str) -> str:
    if fault := identifier_fault(text):
        raise ValueError(fault)
    return text


def _whole(value: object) -> object:
    """A query's digits as an integer; whatever else it is, the strict type then refuses."""
    return int(value) if isinstance(value, str) and _WHOLE.match(value) else value


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
"""1 to 256 characters, no control characters, kept byte for byte."""

Roles = Annotated[list[Identifier], Field(max_length=32)]
"""Every decision that rests on such a list carries it, and an entry holds 64 KiB."""


def _flag(value: object) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    if value not in ("true", "false"):
        raise ValueError("must be `true` or `false`")
    return value == "true"


def read_flag(value: object, name: str) -> bool:
    """A query's `true` or `false`; absent is false. `Invalid` for anything else."""
    try:
        return _flag(value)
    except ValueError as error:
        raise invalid([f"{name}: {error}"], "query") from None


Flag = Annotated[bool, BeforeValidator(_flag)]
"""`true` or `false` in a query."""
QueryInt = Annotated[int, BeforeValidator(_whole)]
Text = Annotated[str, Field(max_length=4096, pattern="^[^\\u0000]*$")]
"""Words for people: a name, a description. No NUL, which PostgreSQL has not."""


class Listed(RequestModel):
    """What every list takes."""

    limit: QueryInt = Field(100, ge=1, le=1000, description="The most rows to return.")
    cursor: str | None = Field(
        None, max_length=1024, description="Where to continue: from the previous page's `Link`."
    )

    def after(self, *kinds: type) -> Place | None:
        """The place to go on after; `Invalid` where the cursor is none of ours."""
        return None if self.cursor is None else read_cursor(self.cursor, kinds)

    def seq(self) -> int | None:
        """The same where the place is a single number."""
        place = self.after(int)
        return None if place is None else int(place[0])


def complaints(error: ValidationError) -> list[str]:
    """A line per field: where, and what is wrong; never the value, which may be a secret."""
    lines = []
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        where = ".".join(str(part) for part in fault["loc"]) or "body"
        lines.append(f"{where}: {_words(fault['type'], fault['msg'])}")
    return lines


def _words(kind: str, message: str) -> str:
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return "is not known here"
    text = message.removeprefix("Value error, ").removeprefix("Input ")
    return text[:1].lower() + text[1:]
