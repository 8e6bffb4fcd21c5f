"""Recognizes bank accounts: IBANs with their country's length and a valid checksum.

After the word `IBAN` the format is enough: a mistyped IBAN still nearly identifies its owner.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from policies.ground.masking.recognizer import Found, Recognizer

_start = re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{2}[0-9]{2}(?=[ .-]?[0-9A-Za-z])").finditer
_form = re.compile(r"(?:[ .-]?[0-9A-Z]{4}){2,7}(?:[ .-]?[0-9A-Z]{1,4})?(?![0-9A-Za-z])").match
_word = re.compile(r"(?i)\biban\b").search
_likely = re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{2}[0-9]{2}[ .-]?[0-9A-Za-z]").search


@lru_cache(maxsize=1024)  # all 676 pairs of letters fit
def _length(country: str) -> int:
    """The length of an IBAN of `country`; 0 if the country has no IBANs."""
    from stdnum import numdb

    found = numdb.get("iban").info(country)[0][1].get("bban", "")
    # A structure such as `8!n10!n`, without the country code and two check digits: 4 characters.
    return sum(map(int, re.findall(r"(\d+)!", found))) + 4 if found else 0


@lru_cache(maxsize=64)
def _remainder(count: int) -> re.Pattern[str]:
    return re.compile(rf"(?:[ .-]?[0-9A-Za-z]){{{count}}}(?![0-9A-Za-z])")


def _spans(text: str) -> Iterator[Found]:
    from stdnum import iban

    for start in _start(text):
        yield None
        if _word(text, max(0, start.start() - 24), start.start()):
            whole = _form(text, start.end())
            if whole is not None:
                yield start.start(), whole.end()
                continue
        # Without the word, the country's length and the checksum (ISO 7064, mod 97) have to fit.
        length = _length(start.group()[:2].upper())
        whole = _remainder(length - 4).match(text, start.end()) if length else None
        if whole is None:
            continue
        number = text[start.start() : whole.end()]
        if iban.is_valid(number.replace(".", ""), check_country=False):
            yield start.start(), whole.end()


IBAN = Recognizer("IBAN", _likely, _spans)
