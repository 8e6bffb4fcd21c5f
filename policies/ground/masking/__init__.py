"""Removes personal data from text before it is written anywhere (`CONTRACT.md`, Masking).

    masked_text("mail ann@example.com")  ->  Masked("mail [EMAIL]", ("EMAIL",))

`mask.py` lists the recognizers in order. `README.md` says what each of them finds, how well, and at
what cost. On an event loop, use `MaskingTurns` instead of the two functions, which would block it.
Pure. Nothing is imported before the first text is masked, so a service that never masks does not
pay for the libraries.
"""

from typing import Any

from policies.ground.masking.recognizer import Masked
from policies.ground.masking.turns import MaskingTurns

__all__ = ["Masked", "MaskingTurns", "masked_json", "masked_text"]


def masked_text(text: str, context: str = "") -> Masked:
    """Return `text` with each span of personal data replaced by its label, such as `[EMAIL]`.
    Idempotent; never raises.

    `context`, such as the name of the field, is read before the text and is not part of the result.
    """
    from policies.ground.masking.mask import mask

    return mask(text, context)


def masked_json(value: Any) -> tuple[Any, tuple[str, ...]]:
    """Return a decoded JSON value with every string, key and card number masked at any depth, and
    the sorted labels of what was masked. The caller must bound the depth."""
    from policies.ground.masking.mask import mask_tree

    return mask_tree(value)
