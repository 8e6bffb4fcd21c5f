"""Quantities of Kubernetes, such as `50m` and `1Gi`, in the form that the API server stores. Knows
the notation (apimachinery/pkg/api/resource/quantity.go), and no object."""

from __future__ import annotations

import math
import re
from fractions import Fraction

_FORM = re.compile(
    r"\A([+-]?)([0-9]{1,15})(?:\.([0-9]{1,3}))?(?:(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)|"
    r"[eE]([+-]?[0-9]{1,2}))?\Z"
)
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def canonical(text: str) -> str | None:
    """The quantity as the API server stores it: a whole number with the largest possible suffix of
    the same kind. None if it is not a quantity, or has an exponent or more than three decimals."""
    match = _FORM.match(text)
    if match is None or match[5] is not None:
        return None
    sign, whole, decimals, suffix, _ = match.groups()
    number = Fraction(int(whole + (decimals or "")), 10 ** len(decimals or ""))
    if suffix in _BINARY[1:]:
        number *= 1024 ** _BINARY.index(suffix)
        # The API server turns a binary quantity below 1 KiB into a decimal one.
        written = _binary(number) if number >= 1024 else _decimal(number)
    else:
        written = _decimal(number * Fraction(10) ** _DECIMAL[suffix or ""])
    return ("-" if sign == "-" and number else "") + written


def _binary(number: Fraction) -> str:
    if number.denominator != 1:
        return _decimal(number)
    power = 0
    while power < len(_BINARY) - 1 and number % 1024 == 0 and number:
        number /= 1024
        power += 1
    return f"{number}{_BINARY[power]}"


def _decimal(number: Fraction) -> str:
    for suffix, power in sorted(_DECIMAL.items(), key=lambda each: -each[1]):
        scaled = number / Fraction(10) ** power
        if scaled.denominator == 1 and (scaled or power == 0):
            return f"{scaled}{suffix}"
    # Less than a billionth is rounded up.
    return f"{math.ceil(number * 10**9)}n"
