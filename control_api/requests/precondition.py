"""The precondition `If-Match` of a change: only if the object is still as the caller read it (RFC
9110, section 13.1.1)."""

import re
from typing import Annotated

from pydantic import AfterValidator

# One or several entity tags, or `*` (RFC 9110, sections 8.8.3 and 13.1.1).
_TAG = r'(?:W/)?"[!#-~]*"'
TAGS = rf"^(?:\*|{_TAG}(?:[ \t]*,[ \t]*{_TAG})*)$"


def _tags(text: str) -> str:
    if not re.fullmatch(TAGS, text):
        raise ValueError('must be a version between quotes, such as "3", or several, or `*`')
    return text


IfMatch = Annotated[str, AfterValidator(_tags)]


def is_met(if_match: str | None, version: object) -> bool:
    """Whether the precondition, if there is one, names this version."""
    # RFC 9110, section 13.1.1, asks for strong comparison: a weak tag never matches.
    return if_match in (None, "*") or f'"{version}"' in re.findall(_TAG, if_match or "")
