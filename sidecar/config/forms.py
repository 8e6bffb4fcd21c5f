"""Defines the types of values that only the sidecar's settings have: numbers, switches, lists of
texts, addresses, and TLS keys. Loads every certificate at once, so that a missing, damaged or
mismatched one is a complaint at the start rather than a failure in the night."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from policies.definitions.definition import FROM_ENVIRONMENT, DefinitionFaults, Node, shown
from policies.definitions.forms import (
    ListOf,
    MappingByName,
    Optional,
    Parsed,
    Schema,
    Text,
    TextCheck,
    actual,
)
from policies.definitions.records import Declared, Make, Section, declared
from policies.ground.addresses import RedisUrl
from policies.ground.distribution import how_to_install
from policies.ground.errors import Malformed
from sidecar.http.authority import canonical_host
from sidecar.http.tls_contexts import client_context, server_context
from sidecar.settings.model import HTTP_VERSIONS, NoTls, Pair, UpstreamTls
from sidecar.settings.sections import DoorTls, Scalar

ANY_TEXT = Text(lambda _: None)
FILLED = Text(lambda _: None, empty="is required")

_INTEGER = re.compile(r"[0-9]{1,15}\Z")
_DECIMAL = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?\Z")


def sections(form: Declared) -> ListOf:
    """Return the type of a list of mappings, in which an empty item counts as absent."""
    return ListOf(Optional(form))


def _given(node: Node) -> str:
    value: Any = node.value
    return shown(value) if isinstance(value, str) else f"a {node.tag}"


@dataclass(frozen=True, slots=True)
class Number:
    """The type of a number from `least` to `most`, in `unit`. Without `most`, it must be a whole
    number."""

    least: float
    most: float | None = None
    unit: str = ""

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> float | None:
        whole = self.most is None
        tags = ("int", FROM_ENVIRONMENT) if whole else ("int", "float", FROM_ENVIRONMENT)
        # YAML 1.1 accepts `1_000`, `0x10`, `010` (8) and `1:30` (90) as numbers, which surprises
        # most readers. The forms accepted here have one reading.
        if node.tag not in tags or not (_INTEGER if whole else _DECIMAL).match(node.value):
            faults.add(node.line, key, f"{_given(node)} is not a plain number such as 30")
            return None
        value = int(node.value) if whole else float(node.value)
        if self.most is None and value < self.least:
            faults.add(node.line, key, f"`{value}` is below the minimum of {self.least}")
        elif self.most is not None and not self.least <= value <= self.most:
            between = f"between {self.least:g} and {self.most:g}{self.unit}"
            faults.add(node.line, key, f"`{value:g}` is not {between}")
        return value

    def schema(self) -> Schema:
        kind, most = ("number", self.most) if self.most is not None else ("integer", 10**15 - 1)
        return {"type": kind, "minimum": self.least, "maximum": most}


@dataclass(frozen=True, slots=True)
class Switch:
    """The type of a value `on` or `off`. YAML reads both as truth values, so truth values are
    accepted too."""

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> str | None:
        if node.value in ("off", "false"):
            return "off"
        if node.value not in ("on", "true"):
            faults.add(node.line, key, f"must be one of `on`, `off`, not {_given(node)}")
            return None
        return "on"

    def schema(self) -> Schema:
        # A validator sees the truth values that YAML makes of these words.
        return {"enum": ["on", "off", True, False]}


_SIZE = re.compile(r"([1-9][0-9]{0,14})(?: ?(KiB|MiB|GiB))?\Z")
_UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


@dataclass(frozen=True, slots=True)
class Size:
    """The type of a number of bytes, at least `least`: a plain number, or one with `KiB`, `MiB` or
    `GiB`."""

    least: int

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> int | None:
        match = _SIZE.match(node.value) if node.is_text or node.tag == "int" else None
        if match is None:
            faults.add(node.line, key, f"{_given(node)} is not a size such as `4 MiB`")
            return None
        size = int(match[1]) * _UNITS[match[2] or ""]
        if size < self.least:
            faults.add(node.line, key, f"`{node.value}` is below the minimum of {self.least} bytes")
        return size

    def schema(self) -> Schema:
        number = {"type": "integer", "minimum": self.least, "maximum": 10**15 - 1}
        text = {"type": "string", "pattern": "^[1-9][0-9]{0,14}(?: ?(KiB|MiB|GiB))?$"}
        return {"anyOf": [number, text]}


@dataclass(frozen=True, slots=True)
class HttpVersions:
    """The type of a version of HTTP, `1`, `2` or `auto`. YAML reads two of them as numbers."""

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> str | None:
        if node.value in HTTP_VERSIONS and (node.is_text or node.tag == "int"):
            return str(node.value)
        faults.add(node.line, key, f"must be one of `1`, `2`, `auto`, not {_given(node)}")
        return None

    def schema(self) -> Schema:
        return {"enum": [1, 2, *HTTP_VERSIONS]}


@dataclass(frozen=True, slots=True)
class Texts:
    """The type of a list of strings, or of one string with commas between the items. `fault`
    returns what is wrong with an item."""

    fault: TextCheck = lambda _: None

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> tuple[str, ...] | None:
        if node.tag == "list":
            found = [item.value for item in node.value if item.tag == "str"]
            if len(found) < len(node.value):
                faults.add(node.line, key, "must be a list of strings; put numbers in quotes")
        elif node.is_text:
            found = [each.strip() for each in node.value.split(",") if each.strip()]
        else:
            faults.add(node.line, key, f"must be a list of strings{actual(node)}")
            return None
        for each in found:
            if fault := self.fault(each):
                faults.add(node.line, key, fault)
        return tuple(found)

    def schema(self) -> Schema:
        text = ANY_TEXT.schema()
        return {"anyOf": [{"type": "array", "items": text}, text]}


@dataclass(frozen=True, slots=True)
class _Scalar:
    """The type of a JSON scalar. YAML's own scalars have more spellings, which are refused."""

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> Scalar:
        if node.is_text:
            return str(node.value)
        if node.tag == "null":
            return None
        try:
            # YAML 1.1 also takes `0x10` and `1:30` for numbers, and `no` for a truth value.
            value: Scalar = json.loads(node.value if node.tag in ("int", "float", "bool") else "")
        except ValueError:
            value = math.nan
        if isinstance(value, float) and not math.isfinite(value):
            wrong = f"{_given(node)} is not a text, a number, `true`, `false` or `null`"
            faults.add(node.line, key, wrong)
        return value

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean", "null"]}


SCALARS = MappingByName(_Scalar(), " of texts, numbers, `true` or `false`")


def address_fault(text: str, schemes: tuple[str, ...] = ("http", "https")) -> str | None:
    """Return the fault of an address that must have one of `schemes`; None if it has no fault."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        return f"is not an address: {error}"
    if parts.scheme not in schemes or not parts.hostname or port == 0:
        return f"{shown(text)} is not " + " or ".join(f"{each}://host:port" for each in schemes)
    if parts.username is not None or parts.query or parts.fragment or not text.isascii():
        # The text is not shown: it may contain a password.
        return "must be only scheme, host, port and path; remove user, query and fragment"
    return None


def _address(text: str) -> str:
    if fault := address_fault(text) if text else "is required":
        raise ValueError(fault)
    return text.rstrip("/")


ADDRESS = Parsed(_address, {"minLength": 1, "pattern": "://"})
"""The type of an http address without user, query, fragment or trailing `/`. The port may be
missing."""
# Its fault does not contain the password.
REDIS = Parsed(lambda text: RedisUrl.parse(text) if text else None)


def _served(into: type[Pair] | type[DoorTls]) -> Make:
    def make(section: Section, values: dict[str, Any]) -> Pair | DoorTls | None:
        if section.complained("certificate") or section.complained("key"):
            return None  # loading the files would only add a second complaint
        tls = into(**values)
        try:
            server_context(Pair(tls.certificate, tls.key), values.get("client_ca"))
        except ValueError as error:
            section.complain("", str(error))
        return tls

    return make


PAIR = declared(Pair, _served(Pair))
DOOR_TLS = declared(DoorTls, _served(DoorTls))


def _upstream_tls(section: Section, values: dict[str, Any]) -> UpstreamTls:
    ca = values.pop("ca", None)
    # Where settings arrive without files beside them, as in a pod, the text is in the settings.
    if ca and not ca.lstrip().startswith("-----BEGIN"):
        ca = section.faults.base / ca
    return UpstreamTls(ca or None, **values)


def _server_name(text: str) -> str:
    try:
        return canonical_host(text)
    except Malformed as error:
        raise ValueError(f"{shown(text)}: {error}") from error


_WITH_TLS = ("https://", "postgres://")

UPSTREAM_TLS = declared(UpstreamTls, _upstream_tls, ca=ANY_TEXT, server_name=Parsed(_server_name))


@dataclass(frozen=True, slots=True)
class _TlsOrOff(Declared):
    """The type of `tls` of a data source: its keys, or `off`. YAML reads that word as a truth
    value."""

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> Any:
        return NoTls() if node.value in ("off", "false") else Declared.read(self, key, node, faults)

    def schema(self) -> Schema:
        return {"anyOf": [Declared.schema(self), {"enum": ["off", False]}]}


TLS_OR_OFF = _TlsOrOff(UPSTREAM_TLS.keys, into=UPSTREAM_TLS.into, make=UPSTREAM_TLS.make)


def check_client_tls(parent: Section, key: str, address: str, values: Mapping[str, Any]) -> None:
    """Check the value of `key`, which configures TLS to the server at the address in the key
    `address`."""
    tls = values.get(key)
    if not parent.has(key) or tls is None or isinstance(tls, NoTls):
        return
    if not (values.get(address) or "").startswith(_WITH_TLS):
        if not parent.complained(address):
            wrong = f"applies only to https://, and `{address}` does not begin with that"
            parent.complain(key, wrong)
    elif (tls.certificate is None) != (tls.key is None):
        parent.complain(key, "needs both `certificate` and `key`, or neither")
    else:
        try:
            client_context(tls)
        except ValueError as error:
            parent.complain(key, str(error))


def check_redis(top: Section, url: RedisUrl | None) -> None:
    """Check that redis-py is installed, and check the TLS files in the options of `redis`, which
    redis-py reads only when it connects."""
    if url is None:
        return
    # redis-py is an extra of the package (pyproject.toml): a sidecar without Redis needs none.
    if find_spec("redis") is None:
        top.complain("redis", f"needs redis-py; {how_to_install('redis')}")
    files = {key: Path(file) for key, file in url.options}
    certificate = files.get("ssl_certfile")
    key = files.get("ssl_keyfile", certificate)  # one file may hold both, as in OpenSSL
    if certificate is None and key is not None:
        top.complain("redis", "`ssl_keyfile` needs an `ssl_certfile`; add it to the address")
        return
    try:
        client_context(UpstreamTls(files.get("ssl_ca_certs"), certificate, key))
    except ValueError as error:
        top.complain("redis", str(error))
