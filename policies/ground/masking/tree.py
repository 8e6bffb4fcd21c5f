"""Masks a JSON value, such as the free-form `detail` of a lineage action.

Each string is read with the name of its member, so `{"phone": "2125550142"}` is understood. In
a member with the name of a secret, every text and number is masked. Elsewhere, the only numbers to
be masked are card numbers of 13 to 19 digits: any other is more often a count than personal.
"""

from typing import Any

from policies.ground.masking.credentials import LABEL as SECRET
from policies.ground.masking.credentials import names_secret
from policies.ground.masking.mask import mask

_CARD = range(10**12, 10**19)


def mask_tree(value: Any) -> tuple[Any, tuple[str, ...]]:
    """See `masked_json` in the package."""
    labels: set[str] = set()
    return _tree(value, "", False, labels), tuple(sorted(labels))


def _tree(value: Any, name: str, secret: bool, labels: set[str]) -> Any:
    kind = type(value)
    if kind is dict:
        made: dict[str, Any] = {}
        for key, member in value.items():
            member_secret = secret or names_secret(key)
            made[_key(key, made, labels)] = _tree(member, key, member_secret, labels)
        return made
    if kind is list:
        return [_tree(each, name, secret, labels) for each in value]
    # Null, true and false hold no secret.
    if secret and kind in (str, int, float) and value != "":
        labels.add(SECRET)
        return f"[{SECRET}]"
    if kind is str:
        return _text(value, name, labels)
    if kind is int and value in _CARD:
        masked = mask(str(value))
        labels.update(masked.labels)
        return masked.text if masked.labels else value
    return value


def _key(key: str, taken: dict[str, Any], labels: set[str]) -> str:
    """The masked key, with a number added if another key was masked to the same text."""
    text = _text(key, "", labels)
    unique, count = text, 1
    while unique in taken:
        count += 1
        unique = f"{text} ({count})"
    return unique


def _text(text: str, context: str, labels: set[str]) -> str:
    masked = mask(text, context)
    labels.update(masked.labels)
    return masked.text
