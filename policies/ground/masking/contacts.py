"""Recognizes contact data: email addresses, phone numbers and IP addresses.

Emails: the search starts from each `@`; if a domain follows, the characters before it are the local
part. IP addresses are those of version 4 and 6, but not version numbers, times or C++ names.

Phone numbers, with or without a country code: `phonenumbers` knows each country's numbering plan;
this module decides which spans to ask it about. The library's own matcher tries every digit of a
text in one region at a time: that takes minutes for 64 KiB, and a number without a country code
belongs to no one region.

    +49 30 123456      possible anywhere in the world
    030/123456         valid in one of `TRUNK`, where national numbers begin with a 0
    (212) 555-0142     the format of North America, assigned or not
    600 123 456        valid in one of `OPEN`, and in groups
    2125550142         only after a word that says what it is, 6 to 15 digits in any format
"""

import re
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv6Address

from policies.ground.masking.recognizer import Found, Recognizer, Span

_email_domain = re.compile(
    r"@(?:(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_][\w-]{1,62}|\[[0-9A-Fa-f.:]{3,45}\])"
).finditer
_LOCAL_PART = frozenset("!#$%&'*+-^_`~.")
_LONGEST_EMAIL = 256


def _email_spans(text: str) -> Iterator[Found]:
    for match in _email_domain(text):
        # Search backwards by hand: a pattern that begins with the local part would be tried at
        # every letter of a text, and take quadratic time on one long word.
        start = at = match.start()
        while start and at - start < _LONGEST_EMAIL:
            char = text[start - 1]
            if not (char.isalnum() or char in _LOCAL_PART):
                break
            start -= 1
        # Quotes and dots before an address belong to the sentence around it.
        while start < at and text[start] in "'`.":
            start += 1
        if start < at:
            yield start, match.end()


EMAIL = Recognizer("EMAIL", lambda text: "@" in text, _email_spans)


TRUNK = ("DE", "GB", "FR", "IT", "NL", "BE", "AT", "CH", "SE", "FI", "AU", "IE", "IN", "ZA", "JP")
OPEN = ("ES", "PL", "BR", "IN", "PT", "DK", "NO", "CZ", "IT", "MX", "SG")
MAX_LOOKUPS = 64
"""The most spans of one text that are looked up in numbering plans. After those the format alone
decides: a text with hundreds of such numbers is a list of phone numbers."""

# Bounded everywhere: each digit of a text is tried once, whatever follows it.
_candidate = re.compile(
    r"(?<![\w.+])(?<![\w][-/])(?:\+ ?)?\(?\+?[0-9](?:[ ./()-]{0,2}[0-9]){5,17}"
    r"(?![0-9A-WYZa-wyz]|-[0-9a-z])(?: ?(?:x|ext\.?|extension) ?[0-9]{1,6}(?![0-9]))?"
).finditer
_extension = re.compile(r" ?[xe]").split
_groups = re.compile(r"[0-9]+").findall
_likely_phone = re.compile(r"[0-9](?:[ ./()-]{0,2}[0-9]){5}").search
_america = re.compile(
    r"(?:\+?1[ .-]?)?(?:\([2-9]\d\d\) ?|[2-9]\d\d[ .-])\d{3}[ .-]\d{4}\Z"
    r"|001-\d{3}-\d{3}-\d{4}"
).match
_date = re.compile(
    r"(?<![\d./-])(?:(?:19|20)\d\d[-./](?:0?[1-9]|1[0-2])[-./][0-3]?\d"
    r"|[0-3]?\d([-./])[0-3]?\d\1(?:(?:19|20)\d\d|\d\d))(?![\d./-])"
).search
# Not phone numbers: thousands, IP addresses, fractions, and postal codes of Brazil and the US.
_grouped = re.compile(r"(?:\d{1,3}(?:\.\d{3})+|\d{1,3}(?:\.\d{1,3}){3}|\d+\.\d+)\Z").match
_postal = re.compile(r"\d{5}-\d{3,4}\Z").match
_words = re.compile(
    r"(?i)(?:phone|\btel\b|telefon|téléphone|teléfono|telephone|mobile|mobil|\bcell\b|celular|"
    r"handy|\bfax|whatsapp|\bsms\b|\bdial\b|hotline|contact number|desk:|office:)"
).search
_hints = re.compile(
    r"(?i)\b(?:call|reach|ring|text|contact|answering|answers|messages?|registered|desk|office)\b"
).search
_others = re.compile(
    r"(?i)(?:order|invoice|ticket|case|reference|\bref\b|account|contract|\bid\b|transaction|"
    r"tracking|\bno\b|\bnr\b|number|serial|isbn|#)[\s.:#]{0,3}\Z"
).search


def _phone_spans(text: str) -> Iterator[Found]:
    budget = [MAX_LOOKUPS]
    for match in _candidate(text):
        yield None
        start, end = match.span()
        # `_words` almost always announce a phone number, so they are searched further away than
        # `_hints`, which often do, and win over `_others`, which announce another number.
        announced = _words(text, max(0, start - 40), start) is not None
        other = not announced and _others(text, max(0, start - 14), start) is not None
        announced = announced or (not other and _hints(text, max(0, start - 24), start) is not None)
        for from_, to in _phone_windows(text, start, end):
            if _is_phone(text[from_:to], announced, other, budget):
                yield from_, to
                break


def _phone_windows(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield the span of a possible phone number, and then shorter parts of it: a year or a count
    may stand next to the number."""
    yield start, end
    left = start
    for _ in range(2):
        left = text.find(" ", left, end) + 1
        if not left:
            break
        yield left, end
    right = end
    for _ in range(2):
        right = text.rfind(" ", start, right)
        if right < 0:
            break
        yield start, right


def _is_phone(number: str, announced: bool, other: bool, budget: list[int]) -> bool:
    # From certain to doubtful: a `+`, America's format, a word before the number, a numbering plan.
    number = _extension(number)[0]
    digits = sum(map(str.isdigit, number))
    if not 6 <= digits <= 19 or _date(number):
        return False
    if number.startswith(("+", "(+")):
        # E.164 limits a number with its country code to 15 digits.
        # With a `+` and in groups it can only be a phone number, even with an unknown country code.
        return digits <= 15 and (len(_groups(number)) > 2 or _in_plan(number, (), budget))
    if _america(number):
        return True
    if announced:
        return digits <= 15 and not _grouped(number)
    if other or not 7 <= digits <= 15 or _grouped(number) or _postal(number):
        return False
    if number.startswith("00"):
        # `ZZ` is no region: the country code decides, and the number has to be valid there.
        return _in_plan("+" + number[2:], ("ZZ",), budget)
    if number.startswith(("0", "(0")):
        return digits >= (10 if number.isdigit() else 8) and _in_plan(number, TRUNK, budget)
    return len(_groups(number)) >= 3 and digits >= 8 and _in_plan(number, OPEN, budget)


def _in_plan(number: str, regions: tuple[str, ...], budget: list[int]) -> bool:
    """Return whether the number is valid in the numbering plan of one of `regions`. Without
    regions, return whether the plan of the number's country has numbers of this length. `budget`
    holds the look-ups that are left; without any, return True."""
    # Imported late: it holds every country's plan, which a service that never masks doesn't need.
    import phonenumbers

    budget[0] -= 1
    if budget[0] < 0:
        return True
    fits = phonenumbers.is_valid_number if regions else phonenumbers.is_possible_number
    for region in regions or (None,):
        try:
            if fits(phonenumbers.parse(number, region)):
                return True
        except phonenumbers.NumberParseException:
            continue  # by this region's rules it is not a number at all
    return False


PHONE = Recognizer("PHONE", _likely_phone, _phone_spans)


# Not within a longer word or number: `v1.2.3.4`, `1.2.3.4.5` and `1.2.3.4-beta` are versions.
_ipv4 = re.compile(
    r"(?<![\w.-])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w-]|\.\w)",
    re.ASCII,
).finditer
_ipv6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f:]{3,39}(?:\.[0-9]{1,3}){0,3}(?![\w:])").finditer
_version_before = re.compile(
    r"(?i)(?:\bv|versions?|release|build|revision|[=><~^]=)[\s:=.]{0,3}\Z"
).search
_likely_ip = re.compile(r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]|:[0-9A-Fa-f]{0,4}:").search


def _ip_spans(text: str) -> Iterator[Found]:
    for match in _ipv4(text):
        version = _version_before(text, max(0, match.start() - 12), match.start())
        yield None if version else match.span()
    for match in _ipv6(text):
        yield match.span() if is_ipv6(match.group()) else None


def is_ipv6(text: str) -> bool:
    # `face::cafe` is valid, but without a digit it is a C++ name more often than an address.
    if text.count(":") < 2 or not any(char.isdigit() for char in text):
        return False
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True


IP = Recognizer("IP", _likely_ip, _ip_spans)
