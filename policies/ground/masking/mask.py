"""Runs a text, or every text of a JSON value, through all recognizers and replaces what they find.

    normalize > spans of every likely recognizer > merge overlaps > replace each by its label

Knows the recognizers and their order, and how spans become one text; nothing of how each recognizer
works. Each task exists in two forms: as a plain function, and as a generator of steps, which pauses
between steps so that other work can run in between (`turns.py`).

In a JSON value, such as the free-form `detail` of a lineage action, each string is read with the
name of its member, so `{"phone": "2125550142"}` is understood. In a member with the name of a
secret, every text and number is masked. Elsewhere, the only numbers to be masked are card numbers
of 13 to 19 digits: any other is more often a count than personal.
"""

import re
from collections.abc import Generator
from typing import Any

from policies.ground.masking.contacts import EMAIL, IP, PHONE
from policies.ground.masking.credentials import CARD, IBAN, SECRET, names_secret
from policies.ground.masking.credentials import LABEL as CREDENTIAL
from policies.ground.masking.national_ids import NATIONAL_ID
from policies.ground.masking.recognizer import (
    LONG,
    UNREAD,
    Masked,
    Recognizer,
    normalize,
    normalize_steps,
)

Labelled = tuple[int, int, str]
"""A span of text to mask, as start and end, and its label, such as `EMAIL`."""

# INVARIANT: the more certain recognizer comes first. If two match the same characters, its label is
# used.
RECOGNIZERS: tuple[Recognizer, ...] = (SECRET, EMAIL, IBAN, CARD, NATIONAL_ID, IP, PHONE)

SHORT = 40
"""The most characters of a text that is masked in one step, without a pause: the worst takes some 3
ms."""

LONGEST = 64 * 1024
"""The most characters of a text that is read; a longer text is masked as a whole. One search of a
text of this length takes up to 20 ms, in which nothing else runs."""

LONGEST_CONTEXT = 256
"""The most characters of a text's context that are read, from its end. All of them are read again
for each text of a list."""

MAX_PASSES = 6
"""The most times that a text is searched. It is masked until nothing more is found: text beside a
label may match although it did not match beside the original value."""

# Every recognizer needs at least one of these. Most texts have none, and cost only this search.
_candidate = re.compile(r"[0-9@:=_-]|[eE][aA][rR][eE][rR] ").search


def mask(text: str, context: str = "") -> Masked:
    """Mask a text as `masked_text` does, without pauses."""
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
    """Mask a text as `mask` does, as a generator that pauses after each candidate, and in a long
    text after each search. It returns the result."""
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
    """Return the spans to mask in `text`, in order, without overlaps: `(start, end, label)`.
    `prefix` is read in front of the text, and not masked.

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
    """Return the text with each span replaced by its label in brackets. Adds those labels to
    `labels`."""
    pieces: list[str] = []
    at = 0
    for start, end, label in found:
        labels.add(label)
        pieces += (text[at:start], f"[{label}]")
        at = end
    return "".join((*pieces, text[at:]))


def _prefix(context: str) -> str:
    return f"{context[-LONGEST_CONTEXT:]}: " if context else ""


_CARD = range(10**12, 10**19)

Steps = Generator[None, None, Any]


def mask_tree(value: Any) -> tuple[Any, tuple[str, ...]]:
    """Mask a decoded JSON value as `masked_json` does, without pauses."""
    steps = tree_steps(value)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            masked: tuple[Any, tuple[str, ...]] = done.value
            return masked


def tree_steps(value: Any) -> Generator[None, None, tuple[Any, tuple[str, ...]]]:
    """Mask a decoded JSON value as `mask_tree` does, as a generator that pauses after each
    candidate and each member. It returns the result."""
    labels: set[str] = set()
    masked = yield from _tree(value, "", False, labels)
    return masked, tuple(sorted(labels))


def _tree(value: Any, name: str, secret: bool, labels: set[str]) -> Steps:
    yield
    kind = type(value)
    if kind is dict:
        made: dict[str, Any] = {}
        counts: dict[str, int] = {}
        for key, member in value.items():
            member_secret = secret or names_secret(key)
            new = yield from _key(key, made, counts, labels)
            made[new] = yield from _tree(member, key, member_secret, labels)
        return made
    if kind is list:
        items = []
        for each in value:
            items.append((yield from _tree(each, name, secret, labels)))
        return items
    # Null, true and false hold no secret.
    if secret and kind in (str, int, float) and value != "":
        labels.add(CREDENTIAL)
        return f"[{CREDENTIAL}]"
    if kind is str:
        return (yield from _text(value, name, labels))
    if kind is int and value in _CARD:
        masked = mask(str(value))
        labels.update(masked.labels)
        return masked.text if masked.labels else value
    return value


def _key(key: str, taken: dict[str, Any], counts: dict[str, int], labels: set[str]) -> Steps:
    """Mask the key of a JSON object, and return it. If another key was masked to the same text, a
    number is added, so that keys stay distinct. `taken` is the object so far."""
    text = yield from _text(key, "", labels)
    # Counting goes on where the last key of this text ended. From 1 each time, a megabyte of keys
    # that are masked to one text would take minutes.
    unique, count = text, counts.get(text, 1)
    while unique in taken:
        count += 1
        unique = f"{text} ({count})"
    counts[text] = count
    return unique


def _text(text: str, context: str, labels: set[str]) -> Steps:
    masked = mask(text, context) if len(text) <= SHORT else (yield from mask_steps(text, context))
    labels.update(masked.labels)
    return masked.text
