"""Parses the setting `SLUICE_EXPORT_URLS`, which says where decisions are pushed to, and in which
format.

Also looks at the files that a URL names; opens no socket.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

FORMATS = ("ocsf", "ecs", "cloudevents", "otel")
"""The JSON formats among `control_api.log.formats`. A test compares both."""
MAX_TARGETS = 16
SYSLOG_TLS = 6514
"""The port of syslog over TLS (RFC 5425, section 4.1). Syslog over plain TCP has no standard
port."""
_PRINTABLE = re.compile(r"[!-~]+\Z")
_HOST = re.compile(r"[A-Za-z0-9._\-]+\Z|[0-9A-Fa-f:.]+\Z")
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")  # a token of RFC 9110
_MAX_FILE = 16_384


class Protocol(StrEnum):
    """The protocol by which decisions are pushed."""

    otlp = "otlp"
    syslog = "syslog"
    file = "file"


_SCHEMES = {
    "otlp+http": (Protocol.otlp, False),
    "otlp+https": (Protocol.otlp, True),
    "syslog+tcp": (Protocol.syslog, False),
    "syslog+tls": (Protocol.syslog, True),
    "file": (Protocol.file, False),
}
_TLS_OPTIONS = {"ca", "certificate", "key"}


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """A target that decisions are pushed to. `path` is the URL's path for OTLP, and the path of the
    file for a file. `ca`, `certificate` and `key` are PEM files; `headers_file` has headers for
    OTLP, one per line. `close_notify` is True if a syslog receiver must end TLS with a
    `close_notify`, and False if it may only close the connection."""

    protocol: Protocol
    tls: bool
    host: str
    port: int | None
    path: str
    format: str
    gzip: bool = True
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    headers_file: Path | None = None
    close_notify: bool = True

    @classmethod
    def parse(cls, text: str) -> "ExportTarget":
        """Parse a target's URL. Raise `ValueError` if it is not valid, without quoting the URL,
        which may hold a secret."""
        parts = _split(text)
        protocol, tls = _SCHEMES[parts.scheme]
        options = _options(parts, protocol, tls)
        host, port = _place(parts, protocol, tls)
        path = _path(parts, protocol)
        format_ = "otel" if protocol is Protocol.otlp else options.get("format", "")
        if format_ not in FORMATS:
            raise ValueError(f"needs `?format=` with one of {', '.join(FORMATS)}")
        gzip = _choice(options, "compression", "gzip", "none")
        close_notify = _choice(options, "close_notify", "required", "optional")
        files = {name: _file(options, name) for name in (*_TLS_OPTIONS, "headers_file")}
        if (files["certificate"] is None) != (files["key"] is None):
            raise ValueError("`certificate` and `key` are only useful together")
        found = cls(
            protocol, tls, host, port, path, format_, gzip, close_notify=close_notify, **files
        )
        found.headers()  # a fault in the file is told at the start
        return found

    @property
    def shown(self) -> str:
        """The target's URL for a log line, without path and options: a path may be a secret."""
        if self.protocol is Protocol.file:
            return f"file://{self.path}"
        scheme = {value: name for name, value in _SCHEMES.items()}[self.protocol, self.tls]
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}" + ("" if self.port is None else f":{self.port}")

    @property
    def identity(self) -> str:
        """The key under which the target's position in each log is stored. It depends on where the
        target is and which format it gets, not on how it is reached or where it stands in the
        setting."""
        path = "" if self.protocol is Protocol.file else quote(self.path)
        return sha256(f"{self.shown}{path}?format={self.format}".encode()).hexdigest()

    def headers(self) -> dict[str, str]:
        """Read the HTTP headers in `headers_file`. Raise `ValueError` if the file can't be read or
        has a bad line."""
        found: dict[str, str] = {}
        if self.headers_file is None:
            return found
        try:
            with self.headers_file.open("rb") as file:
                lines = file.read(_MAX_FILE).decode("ascii").splitlines()
        except (OSError, UnicodeDecodeError):
            raise ValueError(f"`{self.headers_file}` can't be read as text") from None
        for line in filter(None, map(str.strip, lines)):
            name, colon, value = line.partition(":")
            if not colon or not _NAME.match(name) or not value.strip().isprintable():
                raise ValueError(f"a line of `{self.headers_file}` is not `name: value`")
            found[name] = value.strip()
        return found


def parse_targets(text: str) -> tuple[ExportTarget, ...]:
    """Parse `<URL>,<URL>…`. Raise `ValueError` with every fault, each with the position of its
    URL."""
    found, faults = list[ExportTarget](), list[str]()
    for place, each in enumerate(text.split(","), 1):
        try:
            target = ExportTarget.parse(each.strip())
        except ValueError as error:
            faults.append(f"URL {place}: {error}")
            continue
        if any(target.identity == other.identity for other in found):
            faults.append(f"URL {place}: is listed twice, so leave one out")
        found.append(target)
    if len(found) > MAX_TARGETS:
        faults.append(f"lists {len(found)} URLs; at most {MAX_TARGETS} are pushed to")
    if faults:
        raise ValueError("; ".join(faults))
    return tuple(found)


def _split(text: str) -> SplitResult:
    if not _PRINTABLE.match(text):
        raise ValueError(
            "is empty, or has a space or another character that a URL must encode; a comma between "
            "two URLs, and `%2C` within one"
        )
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018  raises for what is no port
    except ValueError:
        raise ValueError("is not a URL, or has a port that is not one") from None
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"must begin with {', '.join(f'{each}://' for each in _SCHEMES)}")
    if "@" in parts.netloc:
        raise ValueError(
            "must not hold a user or password, which logs and process lists would show: put the "
            "header `Authorization: …` into a file, and name that with `?headers_file=`"
        )
    if parts.fragment or "#" in text:
        raise ValueError("must not have a fragment (`#`)")
    return parts


def _options(parts: SplitResult, protocol: Protocol, tls: bool) -> dict[str, str]:
    allowed = {"compression", "headers_file"} if protocol is Protocol.otlp else {"format"}
    if tls:
        allowed |= _TLS_OPTIONS
    if tls and protocol is Protocol.syslog:
        allowed |= {"close_notify"}
    try:
        pairs = (
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True, errors="strict")
            if parts.query
            else []
        )
    except ValueError:
        raise ValueError("its options are not `?name=value&name=value`") from None
    options = dict(pairs)
    if len(options) != len(pairs):
        raise ValueError("has an option twice")
    if unknown := sorted(options.keys() - allowed):
        # The name only: a value may be a secret.
        raise ValueError(
            f"has an option that is not one of {', '.join(sorted(allowed))}: "
            + ", ".join(f"`{name[:40]}`" for name in unknown)
        )
    return options


def _place(parts: SplitResult, protocol: Protocol, tls: bool) -> tuple[str, int | None]:
    if protocol is Protocol.file:
        if parts.netloc:
            raise ValueError("must have three slashes: `file:///path`")
        return "", None
    host, port = (parts.hostname or "").lower(), parts.port
    if not _HOST.match(host):
        raise ValueError("must name a host: `://host:port`")
    if port == 0:
        raise ValueError("has port 0")
    if protocol is Protocol.otlp:
        return host, port or (443 if tls else 80)
    if port is None and not tls:
        raise ValueError("must name a port, such as `:514` or `:601`")
    return host, port or SYSLOG_TLS


def _path(parts: SplitResult, protocol: Protocol) -> str:
    if protocol is Protocol.otlp:
        # As OTLP exporters do with a base URL; one that names the signal's path is taken as it is.
        base = parts.path.rstrip("/")
        return base if base.endswith("/v1/logs") else base + "/v1/logs"
    if protocol is Protocol.syslog:
        if parts.path not in ("", "/"):
            raise ValueError("must not have a path")
        return ""
    try:
        path = Path(unquote(parts.path, errors="strict"))
    except ValueError:
        raise ValueError("has a path that is not UTF-8") from None
    if "\0" in str(path) or not path.is_absolute() or path.name == "":
        raise ValueError("must name a file by its whole path: `file:///path`")
    if path.exists() and not path.is_file():
        raise ValueError(f"`{path}` is not a file")
    if not path.parent.is_dir():
        raise ValueError(f"`{path.parent}` is not a folder: make it first")
    return str(path)


def _choice(options: dict[str, str], name: str, default: str, other: str) -> bool:
    """Return whether an option has its default value. Raise `ValueError` if it has neither of its
    two values."""
    value = options.get(name, default)
    if value not in {default, other}:
        raise ValueError(f"`{name}` is `{default}` or `{other}`")
    return value == default


def _file(options: dict[str, str], name: str) -> Path | None:
    if name not in options:
        return None
    path = Path(options[name])
    try:
        with path.open("rb"):
            return path
    except (OSError, ValueError):
        raise ValueError(f"`{name}` names a file that can't be read") from None
