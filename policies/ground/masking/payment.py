"""Recognizes payment cards and bank accounts: 12 to 19 digits with a brand's prefix and length and
a valid Luhn checksum, in one piece or in groups; IBANs with their country's length and checksum.

After a word such as `card`, the Luhn checksum is enough. After the word `IBAN` the format is
enough: a mistyped IBAN still nearly identifies its owner.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from policies.ground.masking.recognizer import Found, Recognizer, Span

# Prefixes and lengths as the brands publish them.
BRANDS = (
    (r"4", (13, 16, 19)),  # Visa
    (r"5[1-5]|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)", (16,)),  # Mastercard
    (r"3[47]", (15,)),  # American Express
    (r"3(?:0[0-5]|09|[689])", (14, 16, 17, 18, 19)),  # Diners Club
    (r"6(?:011|4[4-9]|5)", (16, 17, 18, 19)),  # Discover
    (r"35(?:2[89]|[3-8]\d)|2131|1800", (15, 16, 17, 18, 19)),  # JCB
    (r"62|81", (16, 17, 18, 19)),  # UnionPay
    (r"50(?:18|20|38)|5893|6304|67(?:59|6[1-3])", (12, 13, 14, 15, 16, 17, 18, 19)),  # Maestro
    (r"5[06-9]|6[37]", (13, 14, 15, 16, 17, 18, 19)),  # Maestro
    (r"220[0-4]", (16, 17, 18, 19)),  # Mir
    (r"60|82|508", (16,)),  # RuPay
)
_brand = re.compile("|".join(f"({prefix})" for prefix, _ in BRANDS)).match
_DOUBLED = str.maketrans("0123456789", "0246813579")

_run = re.compile(r"(?<![0-9A-Za-z])[0-9]+(?:[ .\-][0-9]+)*(?![0-9A-Za-z])").finditer
_group = re.compile(r"[0-9]+").finditer
_likely_card = re.compile(r"[0-9](?:[ .\-]?[0-9]){11}").search
_card_word = re.compile(r"(?i)\b(?:cards?|cc|visa|mastercard|maestro|amex)\b").search


def is_card(digits: str, announced: bool = False) -> bool:
    """Return whether the digits are a card number; `announced` is true if a word before them says
    so."""
    if not announced:
        match = _brand(digits)
        if match is None or match.lastindex is None:
            return False
        # The group that matched is the brand's row.
        if len(digits) not in BRANDS[match.lastindex - 1][1]:
            return False
    # A single repeated digit is a placeholder, such as `0000 0000 0000 0000`.
    if len(set(digits)) == 1:
        return False
    # Luhn (ISO/IEC 7812-1): every second digit from the right is doubled, and its digits added.
    doubled = digits[-2::-2].translate(_DOUBLED)
    return sum(map(int, digits[::-2] + doubled)) % 10 == 0


def _card_spans(text: str) -> Iterator[Found]:
    for run in _run(text):
        if run.end() - run.start() < 12:
            continue
        announced = _card_word(text, max(0, run.start() - 32), run.start()) is not None
        groups: list[Span] = []
        for group in _group(text, run.start(), run.end()):
            groups.append(group.span())
            yield None
        found = False
        for window in _card_windows(text, groups, announced):
            found = found or window is not None
            yield window
        if not found and 12 <= sum(end - start for start, end in groups) <= 19:
            # Written in small groups, such as digit by digit: tested only as a whole.
            digits = "".join(text[start:end] for start, end in groups)
            if is_card(digits, announced):
                yield run.span()


def _card_windows(text: str, groups: list[Span], announced: bool) -> Iterator[Found]:
    """Yield runs of groups that together are a card; all groups but the last have three digits or
    more."""
    reach = 0
    for first, (start, _) in enumerate(groups):
        if start < reach:
            continue
        yield None
        digits = ""
        for from_, to in groups[first : first + 6]:
            digits += text[from_:to]
            if len(digits) > 19:
                break
            if len(digits) >= 12 and is_card(digits, announced):
                yield start, to
                reach = to
            # Stop: otherwise a long list of small numbers would be tried at each of them.
            if to - from_ < 3:
                break


CARD = Recognizer("CARD", _likely_card, _card_spans)


_iban_start = re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{2}[0-9]{2}(?=[ .-]?[0-9A-Za-z])").finditer
_iban_form = re.compile(r"(?:[ .-]?[0-9A-Z]{4}){2,7}(?:[ .-]?[0-9A-Z]{1,4})?(?![0-9A-Za-z])").match
_iban_word = re.compile(r"(?i)\biban\b").search
_likely_iban = re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{2}[0-9]{2}[ .-]?[0-9A-Za-z]").search


@lru_cache(maxsize=1024)  # all 676 pairs of letters fit
def _iban_length(country: str) -> int:
    """Return the length of an IBAN of `country`; 0 if the country has no IBANs."""
    from stdnum import numdb

    found = numdb.get("iban").info(country)[0][1].get("bban", "")
    # A structure such as `8!n10!n`, without the country code and two check digits: 4 characters.
    return sum(map(int, re.findall(r"(\d+)!", found))) + 4 if found else 0


@lru_cache(maxsize=64)
def _iban_remainder(count: int) -> re.Pattern[str]:
    return re.compile(rf"(?:[ .-]?[0-9A-Za-z]){{{count}}}(?![0-9A-Za-z])")


def _iban_spans(text: str) -> Iterator[Found]:
    from stdnum import iban

    for start in _iban_start(text):
        yield None
        if _iban_word(text, max(0, start.start() - 24), start.start()):
            whole = _iban_form(text, start.end())
            if whole is not None:
                yield start.start(), whole.end()
                continue
        # Without the word, the country's length and the checksum (ISO 7064, mod 97) have to fit.
        length = _iban_length(start.group()[:2].upper())
        whole = _iban_remainder(length - 4).match(text, start.end()) if length else None
        if whole is None:
            continue
        number = text[start.start() : whole.end()]
        if iban.is_valid(number.replace(".", ""), check_country=False):
            yield start.start(), whole.end()


IBAN = Recognizer("IBAN", _likely_iban, _iban_spans)
