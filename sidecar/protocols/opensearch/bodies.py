"""Reads the bodies of requests to OpenSearch and Elasticsearch, whose clients use media types of
their own for JSON. Pure."""

import re
from typing import Any

from sidecar.protocols.budget import Budget
from sidecar.protocols.strict_body import json_lines, optional_json_object

# `application/vnd.elasticsearch+json; compatible-with=9`, which clients send since 8.0. CBOR and
# SMILE, which the servers read too, are not matched, so they are refused like any other type.
_VENDOR = re.compile(
    r"application/vnd\.(?:elasticsearch|opensearch)\+(json|x-ndjson)"
    r"(?:\s*;\s*(?:compatible-with=[0-9]{1,2}|charset=\"?utf-8\"?))*",
    re.IGNORECASE,
).fullmatch


def optional_json(raw: bytes, media_type: str | None, budget: Budget) -> dict[str, Any] | None:
    """One JSON object, or None if there is no body."""
    return optional_json_object(raw, _standard(media_type), budget)


def ndjson(raw: bytes, media_type: str | None, budget: Budget) -> list[dict[str, Any]]:
    """One JSON object per line."""
    return json_lines(raw, _standard(media_type), budget)


def _standard(media_type: str | None) -> str | None:
    vendor = None if media_type is None else _VENDOR(media_type.strip())
    return media_type if vendor is None else f"application/{vendor[1].lower()}"
