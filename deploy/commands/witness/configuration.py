"""The witness's configuration file, YAML:

    listen: 127.0.0.1:8720
    name: witness.example.com/w1
    key_file: witness.key
    state: witness-state
    logs:
      - origin: tenant-a/0123
        key: tenant-a/0123+1a2b3c4d+AY…

Paths are relative to the file. Reports all faults at once. Makes no file and opens no port.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policies.definitions.definition import DefinitionFaults, Node, unknown_key
from policies.definitions.load import parse_tree, read_text
from policies.ground.addresses import ListenAddress
from policies.ground.process.tls_files import TlsFiles
from policies.ground.settings import SettingsError
from policies.trail.proofs.signed_note import ED25519, VerifierKey, is_name

MAX_NAME = 256
MAX_LOGS = 10_000
_REQUIRED = ("name", "key_file", "state", "logs")
_KEYS = ("listen", *_REQUIRED, "tls_cert", "tls_key")
_LOG_KEYS = ("origin", "key")


@dataclass(frozen=True, slots=True)
class WitnessConfiguration:
    """The operator's decisions. An origin that has several lines has several keys, each of which
    may sign."""

    listen: ListenAddress
    """The address at which checkpoints are submitted; with port 0 the system chooses one."""
    name: str
    """The witness's name in its key and its signatures: a URL without a scheme, as a rule."""
    key_file: Path
    """The private key: 32 bytes, base64, mode 0600. Made where absent."""
    state: Path
    """The directory of the checkpoints signed last, one file a log: all that the witness
    remembers."""
    logs: dict[str, tuple[VerifierKey, ...]] = field(repr=False)
    """The keys of each log, by origin. No other log is signed."""
    tls: TlsFiles | None = None
    """From `tls_cert` and `tls_key`; without them the port speaks plain HTTP."""


def load(path: Path) -> WitnessConfiguration:
    """Read the file. Raises `SettingsError` with every fault of it."""
    faults = DefinitionFaults(str(path))
    try:
        text = read_text(path, faults)
        tree = None if text is None else parse_tree(text, faults)
        made = None if tree is None else _configuration(tree, path.parent, faults)
    except DefinitionFaults.TooManyFaults:
        made = None
    if faults.found or made is None:
        raise SettingsError([str(each) for each in faults.found])
    return made


def _configuration(
    tree: Node, directory: Path, faults: DefinitionFaults
) -> WitnessConfiguration | None:
    members = _members(tree, _KEYS, faults)
    for name in _REQUIRED:
        if name not in members and tree.tag == "map":
            faults.add(tree.line, name, "is required")

    def read(name: str, parse: Callable[[str], Any]) -> Any:
        return None if name not in members else _text(members[name], name, parse, faults)

    def path(text: str) -> Path:
        return directory / text

    listen = read("listen", ListenAddress.parse) or ListenAddress("127.0.0.1", 8720)
    name, key_file, state = read("name", _name), read("key_file", path), read("state", path)
    certificate, key = read("tls_cert", path), read("tls_key", path)
    if (certificate is None) != (key is None):
        faults.add(tree.line, "tls_cert", "and `tls_key` need each other")
    logs = _logs(members.get("logs"), faults)
    tls = TlsFiles(certificate, key) if certificate and key else None
    # With any part missing there is a fault, and the caller drops the rest.
    if faults.found:
        return None
    return WitnessConfiguration(listen, name, key_file, state, logs, tls)


def _logs(node: Node | None, faults: DefinitionFaults) -> dict[str, tuple[VerifierKey, ...]]:
    logs: dict[str, tuple[VerifierKey, ...]] = {}
    if node is None:
        return logs
    if node.tag != "list" or len(node.value) > MAX_LOGS:
        faults.add(node.line, "logs", f"must be a list of at most {MAX_LOGS} logs")
        return logs
    for origin, key in _lines(node.value, faults):
        logs[origin] = (*logs.get(origin, ()), key)
        # After an incarnation the log signs with the same key under the new origin's name, and
        # operators copy the line that they have. The origin is signed, so this adds no log.
        if key.name != origin and is_name(origin):
            logs[origin] += (key._replace(name=origin),)
    return logs


def _lines(items: list[Node], faults: DefinitionFaults) -> Iterator[tuple[str, VerifierKey]]:
    for item in items:
        members = _members(item, _LOG_KEYS, faults)
        read = {
            name: _text(members[name], name, parse, faults)
            for name, parse in (("origin", _origin), ("key", _log_key))
            if name in members
        }
        for name in _LOG_KEYS:
            if name not in members and item.tag == "map":
                faults.add(item.line, name, "is required: a log is an `origin` and its `key`")
        if read.get("origin") and read.get("key"):
            yield read["origin"], read["key"]


def _members(node: Node, known: tuple[str, ...], faults: DefinitionFaults) -> dict[str, Node]:
    if node.tag != "map":
        faults.add(node.line, "", f"must be a mapping of {', '.join(known)}")
        return {}
    members: dict[str, Node] = node.value
    for key, value in members.items():
        if key not in known:
            unknown_key(value.line, key, known, faults)
    return members


def _text(node: Node, key: str, parse: Callable[[str], Any], faults: DefinitionFaults) -> Any:
    if node.tag in ("map", "list", "null") or not node.value:
        faults.add(node.line, key, "must be a text")
        return None
    try:
        return parse(node.value)
    except ValueError as error:
        faults.add(node.line, key, str(error))
        return None


def _name(text: str) -> str:
    if not is_name(text) or len(text.encode()) > MAX_NAME:
        raise ValueError(f"must have no space and no `+`, and at most {MAX_NAME} bytes")
    return text


def _origin(text: str) -> str:
    # The first line of a note: anything that stays on it.
    if not text.isprintable() or len(text.encode()) > MAX_NAME:
        raise ValueError(f"must be printable, on one line, and have at most {MAX_NAME} bytes")
    return text


def _log_key(text: str) -> VerifierKey:
    key = VerifierKey.parse(text)
    if key.type != ED25519:
        raise ValueError(f"`{key.name}` is the key of a witness (type 4), not of a log (type 1)")
    return key
