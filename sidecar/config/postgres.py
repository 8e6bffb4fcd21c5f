"""Reads the settings that only a data source of the kind `postgres` has. Knows no other keys."""

import re
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from policies.definitions.definition import shown
from policies.definitions.forms import FilePath, matching
from policies.definitions.records import Section, declared
from policies.ground.distribution import how_to_install
from sidecar.config.forms import ANY_TEXT, Number, Size, Texts, address_fault, sections
from sidecar.settings.model import NoTls, Source
from sidecar.settings.postgres import AllowedFunctions, Login, RelationRule, ResultLimits

_KEYS = ("login", "relations", "functions", "result")
"""The keys that no other kind has."""
_OF_HTTP = (
    "routes", "paths", "trailers", "sensitivity_field", "path", "exact_paths", "http", "half_close",
    "terminate", "grpc", "grpc_listen", "aws", "endpoint", "arguments", "methods", "sse", "mode",
)  # fmt: skip
"""Keys of other kinds, which don't apply to this one."""
_LEAST_HOLD = 64 * 1024

_NAMES = re.compile(r"[^.\x00-\x1f]+\.[^.\x00-\x1f]+\Z")


def _name_fault(text: str) -> str | None:
    if _NAMES.match(text) is None:
        return f"{shown(text)} is not a schema and a name such as `hr.*`"
    return None


_PATTERN = matching(_NAMES, "is not a schema and a name such as `hr.*`", "is required")


def postgres_fault(text: str) -> str | None:
    """Return the fault of the address of a `postgres` source; None if it has none."""
    if fault := address_fault(text, ("postgres",)):
        return fault
    database = unquote(urlsplit(text).path.removeprefix("/"))
    if not database or "/" in database or "\x00" in database:
        return f"{shown(text)} must be postgres://host:port/database"
    return None


def check_postgres(section: Section, source: Source) -> None:
    """Complain about keys of a `postgres` source at other kinds, and of others at a `postgres`
    source."""
    if source.kind != "postgres":
        if isinstance(source.tls, NoTls):
            section.complain("tls", "`off` applies only to sources of the kind `postgres`")
        for key in _KEYS:
            if section.has(key):
                section.complain(key, "applies only to sources of the kind `postgres`")
        return
    for key in _OF_HTTP:
        if section.has(key):
            section.complain(key, "does not apply to the kind `postgres`; remove it")
    if source.login is None and not section.complained("login"):
        section.complain("login", "is required: the role with which the sidecar logs in")
    if find_spec("postgast") is None:
        section.complain("kind", f"`postgres` needs postgast; {how_to_install('postgres')}")


def _password_file(path: Path) -> None:
    if not path.is_file():
        raise ValueError(f"`{path}` is not a file")


LOGIN = declared(Login, user=ANY_TEXT, password_file=FilePath("fault", _password_file))
RELATIONS = sections(declared(RelationRule, match=_PATTERN))
FUNCTIONS = declared(AllowedFunctions, allow=Texts(_name_fault))
RESULT = declared(
    ResultLimits,
    hold=Size(_LEAST_HOLD),
    batch_rows=Number(1),
    max_bytes=Size(_LEAST_HOLD),
    statement_seconds=Number(1),
)
