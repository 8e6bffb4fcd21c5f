"""A text through all recognisers. Knows how their spans become one text, and none of them.

plain form > spans of every likely recogniser > overlaps joined > labels in their place
"""

import re

from policies.ground.masking.masked import Masked
from policies.ground.masking.normalize import fold
from policies.ground.masking.recognizers import RECOGNISERS

PASSES = 6
"""How often a text is gone through until nothing more is found: what stands beside a label now may
be read otherwise than what stood beside the number."""

# What none of the recognisers can do without one of: most texts have none, and cost this search.
_anything = re.compile(r"[0-9@:=_-]|[eE][aA][rR][eE][rR] ").search


def mask(text: str, context: str = "") -> Masked:
    """As `masked_text` of the package."""
    lead = f"{context}: " if context else ""
    labels: set[str] = set()
    for _ in range(PASSES):
        found = _joined(text, lead)
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


def _joined(text: str, lead: str) -> list[tuple[int, int, str]]:
    """Spans in `text` that do not overlap, in order. Those that overlapped are one, under the label
    of the longest, then of the first in the table: no part of any stays readable."""
    plain, places = fold(text)
    if not _anything(plain):
        return []
    plain, cut = lead + plain, len(lead)
    found = sorted(
        (max(start, cut), end, order)
        for order, each in enumerate(RECOGNISERS)
        if each.likely(plain)
        for start, end in each.spans(plain)
        if end > cut
    )
    joined: list[tuple[int, int, str]] = []
    longest, reach = (0, 0), -1
    for start, end, order in found:
        rank = (end - start, -order)
        if start >= reach:
            joined.append((start, end, RECOGNISERS[order].label))
            longest, reach = rank, end
            continue
        longest, label = max((longest, joined[-1][2]), (rank, RECOGNISERS[order].label))
        reach = max(reach, end)
        joined[-1] = (joined[-1][0], reach, label)
    if places is None:
        return [(start - cut, end - cut, label) for start, end, label in joined]
    return [(places[s - cut], places[e - cut - 1] + 1, label) for s, e, label in joined]
