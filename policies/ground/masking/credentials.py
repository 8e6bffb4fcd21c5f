"""Recognizes secrets, payment cards and bank accounts.

Secrets are values after a telling name (`password=…`, `"api_key": "…"`, `Authorization: …`), and
tokens of well-known formats anywhere. Cards are 12 to 19 digits with a brand's prefix and length
and a valid Luhn checksum, in one piece or in groups. Bank accounts are IBANs with their country's
length and checksum.

After a word such as `card`, the Luhn checksum is enough. After the word `IBAN` the format is
enough: a mistyped IBAN still nearly identifies its owner.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from policies.ground.masking.recognizer import Found, Recognizer, Span

LABEL = "SECRET"

# Names or ends of names, so `db_password`, `clientSecret` and `X-Api-Key` match too.
NAMES = (
    "password", "passwd", "passwort", "passphrase", "passcode", "pwd", "secret", "token", "jwt",
    "api[_-]?key", "apikey", "access[_-]?key", "private[_-]?key", "secret[_-]?key",
    "signing[_-]?key", "encryption[_-]?key", "account[_-]?key", "auth[_-]?key",
    "access[_-]?key[_-]?id", "authorization", "credentials?", "cookie", "session[_-]?key",
    "contraseña", "mot de passe", "senha",
)  # fmt: skip
# Tokens that can be recognized by their format alone.
TOKENS = (
    r"slc_[0-9A-Za-z]{20,}",
    # JWT. The header's length is bounded: otherwise a text with many starts costs quadratic time.
    r"eyJ[\w-]{8,2048}\.[\w-]{8,}(?:\.[\w-]*){0,3}",
    r"(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{16}",  # AWS
    r"(?:gh[opsur]_|github_pat_|glpat-|npm_|pypi-AgEI|hf_|whsec_|dop_v1_)[\w-]{16,}",
    r"xox[abeoprs]-[\w-]{10,}",  # Slack
    r"(?:sk|pk|rk)[_-](?:(?:live|test|proj|ant)[_-])?[\w-]{16,}",  # Stripe, OpenAI, Anthropic
    r"AIza[\w-]{35}",  # Google
    r"SG\.[\w-]{16,}\.[\w-]{16,}",  # SendGrid
)

_NAME = "|".join(NAMES)
# A quoted value, or one up to white space or punctuation. Every repetition is bounded, since the
# text is a stranger's. The fourth line skips the label of an earlier pass, so that masking is
# idempotent.
_VALUE = (
    r"""(?:(?:bearer|basic|digest|token)[ ]{1,2}(?=[^\s\[]))?"""
    r"""(?:\\?"(?P<double>(?:[^"\\\n]|\\[^"\n]){1,4096})"""
    r"""|\\?'(?P<single>(?:[^'\\\n]|\\[^'\n]){1,4096})"""
    r"""|(?!\[[A-Z_]{2,16}\][\s,;&"'}\])]|\[[A-Z_]{2,16}\]\Z)"""
    r"""(?P<bare>(?:\[[A-Z_]{2,16}\]|[^\s,;&"'}\])]){1,4096}))"""
)
_assigned = re.compile(
    rf"(?i)(?:{_NAME})s?\\?[\"'`]?[\])]?[ \t]{{0,3}}(?::=|=>|[:=])[ \t]{{0,3}}(?P<value>{_VALUE})"
).finditer
_token = re.compile(rf"(?<![0-9A-Za-z])(?:{'|'.join(TOKENS)})").finditer
_bearer = re.compile(r"(?i)\bbearer[ ]{1,2}([\w.~+/-]{8,4096}=*)").finditer
_in_url = re.compile(r"://[^\s/:@?#]{0,256}:([^\s/@]{1,256})@").finditer
_block = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]{0,16384}-----END [A-Z ]{0,40}-----)?"
).finditer
_named = re.compile(rf"(?i).*(?:{_NAME})s?\Z", re.DOTALL).match
_harmless = re.compile(r"(?i)(?:null|none|nil|true|false|undefined|\[[A-Z_]{2,16}\])\Z").match
_likely = re.compile(rf"[:=]|(?i:bearer )|-----BEGIN|{'|'.join(TOKENS)}").search


def names_secret(name: str) -> bool:
    """Return whether a JSON member with this name, such as `api_key`, holds a secret."""
    return len(name) <= 256 and _named(name) is not None


def _spans(text: str) -> Iterator[Found]:
    for match in _assigned(text):
        yield None
        for part in ("double", "single", "bare"):
            if match[part] is not None and not _harmless(match[part]):
                start = match.start("value") if part == "bare" else match.start(part)
                yield start, match.end(part)
    yield None
    for match in _bearer(text):
        # "bearer instruments" is prose; a token is long, or contains a digit or sign.
        if len(match[1]) >= 20 or not match[1].isalpha():
            yield match.span(1)
    yield None
    for match in _in_url(text):
        if not _harmless(match[1]):
            yield match.span(1)
    for find in (_token, _block):
        yield None
        for match in find(text):
            yield match.span()


SECRET = Recognizer(LABEL, _likely, _spans)


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
    """Return whether the digits are a payment card's number. `announced` says that a word before
    them, such as `card`, says so; then brand and length are not checked."""
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
    """Yield the spans of consecutive groups of digits that together are a card number, and None at
    each candidate. All groups but the last have three digits or more."""
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
    """Return the length of an IBAN of the two-letter `country`; 0 if the country has no IBANs."""
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
