"""Personal data out of text, before it is written anywhere (contract, section 4).

    masked_text("mail ann@example.com")  ->  Masked("mail [EMAIL]", ("EMAIL",))

What is found, and in which order, is a table (`table.py`); `README.md` tells what each finds, how
well, and what it costs. Pure. Nothing of it is loaded before something is masked for the first
time: a service that never masks never pays for the libraries.
"""

from typing import Any

from policies.ground.masking.masked import Masked

__all__ = ["Masked", "masked_json", "masked_text"]


def masked_text(text: str, context: str = "") -> Masked:
    """`text` with each span that is personal replaced by its label. `context`, such as the name of
    the field, is read with it and no part of the answer. Idempotent; never raises."""
    from policies.ground.masking.mask import mask

    return mask(text, context)


def masked_json(value: Any) -> tuple[Any, tuple[str, ...]]:
    """A decoded JSON value with every string, key and card number in it masked, at any depth, and
    the labels, sorted. The caller bounds the depth."""
    from policies.ground.masking.tree import mask_tree

    return mask_tree(value)
