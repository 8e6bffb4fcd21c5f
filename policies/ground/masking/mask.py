"""Runs a text through all recognizers and replaces what they find.

    normalize > spans of every likely recognizer > merge overlaps > replace each by its label

Knows the recognizers and their order, how spans become one text, and nothing of how each works. A
generator of steps can be left between any two of them (`turns.py`); `mask` takes all at once.
"""

import re
from collections.abc import Generator

from policies.ground.masking.addresses import IP
from policies.ground.masking.cards import CARD
from policies.ground.masking.credentials import SECRET
from policies.ground.masking.emails import EMAIL
from policies.ground.masking.ibans import IBAN
from policies.ground.masking.masked import UNREAD, Masked
from policies.ground.masking.national_ids import NATIONAL_ID
from policies.ground.masking.normalize import normalize, normalize_steps
from policies.ground.masking.phones import PHONE
from policies.ground.masking.recognizer import LONG, Recognizer

Labelled = tuple[int, int, str]
"""A span and its label."""

# INVARIANT: the more certain recognizer comes first. If two match the same characters, its label is
# used.
RECOGNIZERS: tuple[Recognizer, ...] = (SECRET, EMAIL, IBAN, CARD, NATIONAL_ID, IP, PHONE)

SHORT = 40
"""A text of up to this many characters is one step: the worst takes some 3 ms."""

LONGEST = 64 * 1024
"""The longest text that is read, in characters; a longer one is masked whole. One search of a text
of this length takes up to 20 ms, in which nothing else runs."""

LONGEST_CONTEXT = 256
"""How much of a text's context is read, in characters from its end. All of it is read again for
each text of a list."""

MAX_PASSES = 6
"""The limit on passes. A text is masked until nothing more is found: text beside a label may match
although it did not match beside the original value."""

# Every recognizer needs at least one of these. Most texts have none, and cost only this search.
_candidate = re.compile(r"[0-9@:=_-]|[eE][aA][rR][eE][rR] ").search


def mask(text: str, context: str = "") -> Masked:
    """See `masked_text` in the package."""
    if len(text) > LONGEST:
        return UNREAD
    prefix = _prefix(context)
    labels: set[str] = set()
    for _ in range(MAX_PASSES):
        found = find_spans(text, prefix)
        if not found:
            break
        text = _replaced(text, found, labels)
    return Masked(text, tuple(sorted(labels)))


def mask_steps(text: str, context: str = "") -> Generator[None, None, Masked]:
    """Like `mask`, with a pause after each candidate, and in a long text after each search."""
    if len(text) > LONGEST:
        return UNREAD
    prefix = _prefix(context)
    labels: set[str] = set()
    for _ in range(MAX_PASSES):
        found = yield from _span_steps(text, prefix)
        if not found:
            break
        text = _replaced(text, found, labels)
    return Masked(text, tuple(sorted(labels)))


def find_spans(text: str, prefix: str = "") -> list[Labelled]:
    """The spans to mask in `text`, in order, without overlaps: `(start, end, label)`.

    Overlapping spans are merged, so no part of any stays readable. The label is that of the longest
    span; of equally long ones, that of the recognizer listed first.
    """
    plain, positions = normalize(text)
    if not _candidate(plain):
        return []
    # The field's name is in front while recognizers look for words; no span reaches into it.
    plain, cut = prefix + plain, len(prefix)
    found = [
        (max(span[0], cut), span[1], order)
        for order, each in enumerate(RECOGNIZERS)
        if each.likely(plain)
        for span in each.spans(plain)
        if span is not None and span[1] > cut
    ]
    return _merged(found, cut, positions)


def _span_steps(text: str, prefix: str) -> Generator[None, None, list[Labelled]]:
    plain, positions = yield from normalize_steps(text)
    if not _candidate(plain):
        return []
    plain, cut = prefix + plain, len(prefix)
    long = len(plain) > LONG
    found: list[tuple[int, int, int]] = []
    for order, each in enumerate(RECOGNIZERS):
        if long:
            yield
        if not each.likely(plain):
            continue
        for span in each.spans(plain):
            yield
            if span is not None and span[1] > cut:
                found.append((max(span[0], cut), span[1], order))
    return _merged(found, cut, positions)


def _merged(
    found: list[tuple[int, int, int]], cut: int, positions: list[int] | None
) -> list[Labelled]:
    found.sort()
    joined: list[Labelled] = []
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


def _replaced(text: str, found: list[Labelled], labels: set[str]) -> str:
    """The text with labels instead of the spans; adds the labels to `labels`."""
    pieces: list[str] = []
    at = 0
    for start, end, label in found:
        labels.add(label)
        pieces += (text[at:start], f"[{label}]")
        at = end
    return "".join((*pieces, text[at:]))


def _prefix(context: str) -> str:
    return f"{context[-LONGEST_CONTEXT:]}: " if context else ""
