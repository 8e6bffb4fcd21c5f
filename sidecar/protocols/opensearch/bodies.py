"""Bodies of OpenSearch and Elasticsearch, whose clients name JSON by media types of their own.
Pure."""

import re
from typing import Any

from sidecar.protocols.budget import Budget
from sidecar.protocols.strict_body import json_lines, optional_json_object

# `application/vnd.elasticsearch+json; compatible-with=9`, as clients since 8.0 say.
_OWN = re.compile(
    r"application/vnd\.(?:elasticsearch|opensearch)\+(json|x-ndjson)"
    r"(?:\s*;\s*(?:compatible-with=[0-9]{1,2}|charset=\"?utf-8\"?))*",
    re.IGNORECASE,
).fullmatch


def json_or_none(raw: bytes, media: str | None, _budget: Budget) -> dict[str, Any] | None:
    """One JSON object, or None where there is no body."""
    return optional_json_object(raw, _plain(media))


def lines(raw: bytes, media: str | None, budget: Budget) -> list[dict[str, Any]]:
    """One JSON object a line."""
    return json_lines(raw, _plain(media), budget)


def _plain(media: str | None) -> str | None:
    own = None if media is None else _OWN(media.strip())
    return media if own is None else f"application/{own[1].lower()}"
