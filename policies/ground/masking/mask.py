"""Runs a text through all recognizers and replaces what they find.

    normalize > spans of every likely recognizer > merge overlaps > replace each by its label

Knows the recognizers and their order, how spans become one text, and nothing of how each works.
"""

import re

from policies.ground.masking.addresses import IP
from policies.ground.masking.cards import CARD
from policies.ground.masking.credentials import SECRET
from policies.ground.masking.emails import EMAIL
from policies.ground.masking.ibans import IBAN
from policies.ground.masking.masked import Masked
from policies.ground.masking.national_ids import NATIONAL_ID
from policies.ground.masking.normalize import normalize
from policies.ground.masking.phones import PHONE
from policies.ground.masking.recognizer import Recognizer

# INVARIANT: the more certain recognizer comes first. If two match the same characters, its label is
# used.
RECOGNIZERS: tuple[Recognizer, ...] = (SECRET, EMAIL, IBAN, CARD, NATIONAL_ID, IP, PHONE)

MAX_PASSES = 6
"""The limit on passes. A text is masked until nothing more is found: text beside a label may match
although it did not match beside the original value."""

# Every recognizer needs at least one of these. Most texts have none, and cost only this search.
_candidate = re.compile(r"[0-9@:=_-]|[eE][aA][rR][eE][rR] ").search


def mask(text: str, context: str = "") -> Masked:
    """See `masked_text` in the package."""
    prefix = f"{context}: " if context else ""
    labels: set[str] = set()
    for _ in range(MAX_PASSES):
        found = find_spans(text, prefix)
        if not found:
            break
        pieces: list[str] = []
        at = 0
        for start, end, label in found:
            labels.add(label)
            pieces += (text[at:start], f"[{label}]")
            at = end
        text = "".join((*pieces, text[at:]))
    return Masked(text, tuple(sorted(labels)))


def find_spans(text: str, prefix: str = "") -> list[tuple[int, int, str]]:
    """The spans to mask in `text`, in order, without overlaps: `(start, end, label)`.

    Overlapping spans are merged, so no part of any stays readable. The label is that of the longest
    span; of equally long ones, that of the recognizer listed first.
    """
    plain, positions = normalize(text)
    if not _candidate(plain):
        return []
    # The field's name is in front while recognizers look for words; no span reaches into it.
    plain, cut = prefix + plain, len(prefix)
    found = sorted(
        (max(start, cut), end, order)
        for order, each in enumerate(RECOGNIZERS)
        if each.likely(plain)
        for start, end in each.spans(plain)
        if end > cut
    )
    joined: list[tuple[int, int, str]] = []
    longest, reach = (0, 0), -1
    for start, end, order in found:
        rank = (end - start, -order)
        if start >= reach:
            joined.append((start, end, RECOGNIZERS[order].label))
            longest, reach = rank, end
            continue
        longest, label = max((longest, joined[-1][2]), (rank, RECOGNIZERS[order].label))
        reach = max(reach, end)
        joined[-1] = (joined[-1][0], reach, label)
    # Back to positions in the original text, without the prefix. A span's end is found from its
    # last character: at the end of the text, no character has the position `end`.
    if positions is None:
        return [(start - cut, end - cut, label) for start, end, label in joined]
    return [(positions[s - cut], positions[e - cut - 1] + 1, label) for s, e, label in joined]
