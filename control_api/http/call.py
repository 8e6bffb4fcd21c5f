"""One request's text, before it is known what it asks: path, query, body. Knows no route."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote_to_bytes

from policies.ground.errors import Malformed, invalid

MAX_QUERY_FIELDS = 64


@dataclass(frozen=True, slots=True)
class ApiCall:
    """`path` holds the decoded path parameters; `query` is still encoded; `body` is empty where
    the request had none."""

    path: dict[str, str]
    query: str
    content_type: str | None
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def segments(path: str) -> list[str]:
    """The path's segments, each percent-decoded once: `%2F` stays inside its segment.

    `path` is as it came over the wire, bytes outside ASCII as surrogate escapes.
    """
    if not path.startswith("/"):
        raise Malformed("the request's target is not a path")
    return [_decoded(part, "path") if "%" in part else part for part in path[1:].split("/")]


def query_fields(query: str) -> dict[str, str]:
    """The query's fields by name. One that stands twice is refused: of two readers one may take the
    first and the other the last."""
    if not query:
        return {}
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_FIELDS
        )
    except UnicodeDecodeError:
        raise Malformed("the query is not UTF-8 once it is percent-decoded") from None
    except ValueError as error:
        raise Malformed(f"the query can't be read: {error}".lower()) from None
    fields: dict[str, str] = {}
    twice: list[str] = []
    for name, value in pairs:
        if name in fields:
            twice.append(f"{name[:64]}: is given twice")
        fields[name] = value
    if twice:
        raise invalid(twice, "query")
    return fields


def _decoded(part: str, where: str) -> str:
    try:
        return unquote_to_bytes(part).decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed(f"the {where} is not UTF-8 once it is percent-decoded") from None
