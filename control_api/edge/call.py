"""The parts of a request before it is parsed: path, query, headers and body. Knows no route."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote_to_bytes

from policies.ground.errors import Malformed, invalid

MAX_QUERY_FIELDS = 64


class ApiCall(NamedTuple):
    """`path` holds the decoded path parameters; `query` is still encoded; `body` is empty if the
    request had none."""

    path: dict[str, str]
    query: str
    content_type: str | None
    body: bytes
    headers: Mapping[str, str]


def path_segments(path: str) -> list[str]:
    """The path's segments, each percent-decoded once: `%2F` stays inside its segment.

    `path` is as received, with bytes outside ASCII as surrogate escapes.
    """
    if not path.startswith("/"):
        raise Malformed("the request target is not a path: it must begin with `/`")
    try:
        # Split first: decoding first would turn `%2F` inside an id into a separator.
        return [
            unquote_to_bytes(part).decode() if "%" in part else part for part in path[1:].split("/")
        ]
    except UnicodeError:
        raise Malformed("the path is not UTF-8 after percent-decoding") from None


def query_fields(query: str) -> dict[str, str]:
    """The query's fields by name. Raises `Invalid` if one is given twice."""
    if not query:
        return {}
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_FIELDS
        )
    except UnicodeDecodeError:
        raise Malformed("the query is not UTF-8 after percent-decoding") from None
    except ValueError as error:
        raise Malformed(f"the query can't be parsed: {error}".lower()) from None
    fields: dict[str, str] = {}
    duplicates: list[str] = []
    for name, value in pairs:
        if name in fields:
            # A gateway in front of the service might check one of the two, and we use the other.
            duplicates.append(f"{name[:64]}: is given twice")
        fields[name] = value
    if duplicates:
        raise invalid(duplicates, "query")
    return fields
