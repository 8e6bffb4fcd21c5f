"""Recognizes secrets: values after a telling name (`password=…`, `"api_key": "…"`,
`Authorization: …`), and tokens of well-known formats anywhere."""

import re
from collections.abc import Iterator

from policies.ground.masking.recognizer import Found, Recognizer

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
    """Return whether a JSON member with this name holds a secret."""
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
