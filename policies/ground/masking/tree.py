"""Masks a JSON value, such as the free-form `detail` of a lineage action.

Each string is read with the name of its member, so `{"phone": "2125550142"}` is understood. In
a member with the name of a secret, every text and number is masked. Elsewhere, the only numbers to
be masked are card numbers of 13 to 19 digits: any other is more often a count than personal.
"""

from collections.abc import Generator
from typing import Any

from policies.ground.masking.credentials import LABEL as CREDENTIAL
from policies.ground.masking.credentials import names_secret
from policies.ground.masking.mask import SHORT, mask, mask_steps

_CARD = range(10**12, 10**19)

Steps = Generator[None, None, Any]


def mask_tree(value: Any) -> tuple[Any, tuple[str, ...]]:
    """See `masked_json` in the package."""
    steps = tree_steps(value)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            masked: tuple[Any, tuple[str, ...]] = done.value
            return masked


def tree_steps(value: Any) -> Generator[None, None, tuple[Any, tuple[str, ...]]]:
    """Like `mask_tree`, with a pause after each candidate and each member."""
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
    """The masked key, with a number added if another key was masked to the same text."""
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
