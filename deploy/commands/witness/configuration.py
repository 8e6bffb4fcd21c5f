"""Reads the witness's configuration file, which is YAML:

    listen: 127.0.0.1:8720
    name: witness.example.com/w1
    key_file: witness.key
    state: witness-state
    logs:
      - origin: tenant-a/0123
        key: tenant-a/0123+1a2b3c4d+AY…

Paths are relative to the file. All faults are reported at once. No file is created here, and no
port is opened.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policies.definitions.definition import DefinitionFaults
from policies.definitions.forms import FilePath, ListOf, Parsed
from policies.definitions.load import parse_tree, read_text
from policies.definitions.records import Key, Record, Section
from policies.ground.addresses import ListenAddress
from policies.ground.process.tls_files import TlsFiles
from policies.ground.settings import SettingsError
from policies.trail.proofs.signed_note import ED25519, VerifierKey, is_name

MAX_NAME = 256
MAX_LOGS = 10_000


@dataclass(frozen=True, slots=True)
class WitnessConfiguration:
    """The content of the configuration file. A log whose origin is listed several times has several
    keys, each of which may sign its checkpoints."""

    listen: ListenAddress
    """The address at which checkpoints are submitted; with port 0 the system chooses a port."""
    name: str
    """The witness's name in its key and in its signatures: usually a URL without a scheme."""
    key_file: Path
    """The file with the witness's private key: 32 bytes in base64, mode 0600. It is created if
    absent."""
    state: Path
    """The directory with the checkpoint that was signed last for each log, one file a log. The
    witness remembers nothing else."""
    logs: dict[str, tuple[VerifierKey, ...]] = field(repr=False)
    """The public keys of each log, by the log's origin. Checkpoints of other logs are not
    signed."""
    tls: TlsFiles | None = None
    """The certificate and key from `tls_cert` and `tls_key`; if None, the port speaks plain
    HTTP."""


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


def _text(parse: Callable[[str], Any]) -> Parsed:
    return Parsed(parse, scalar=True)  # a name may look like a number


_LOG = Record(
    {
        key: Key(
            _text(parse), required=True, absent="is required: a log is an `origin` and its `key`"
        )
        for key, parse in (("origin", _origin), ("key", _log_key))
    },
    "must be a mapping of origin, key",
)
_PATH = FilePath("fault", scalar=True)
_FILE = Record(
    {
        "listen": Key(_text(ListenAddress.parse), default="127.0.0.1:8720"),
        "name": Key(_text(_name), required=True),
        "key_file": Key(_PATH, required=True),
        "state": Key(_PATH, required=True),
        "logs": Key(ListOf(_LOG, " of logs", MAX_LOGS), required=True),
        "tls_cert": Key(_PATH),
        "tls_key": Key(_PATH),
    }
)


def load(path: Path) -> WitnessConfiguration:
    """Read and check the configuration file. Raises `SettingsError` with all faults of the file."""
    faults = DefinitionFaults(str(path), path.parent)
    made = None
    try:
        text = read_text(path, faults)
        tree = None if text is None else parse_tree(text, faults)
        read = None if tree is None else _FILE.members("", tree, faults)
        if read is not None:
            made = _configuration(*read)
    except DefinitionFaults.TooManyFaults:
        pass  # `faults` keeps what was found
    if made is None:
        raise SettingsError([str(each) for each in faults.found])
    return made


def _configuration(section: Section, found: dict[str, Any]) -> WitnessConfiguration | None:
    certificate, key = found.pop("tls_cert", None), found.pop("tls_key", None)
    if section.has("tls_cert") != section.has("tls_key"):
        section.complain("tls_cert", "and `tls_key` need each other")
    if section.faults.found:
        return None
    logs: dict[str, tuple[VerifierKey, ...]] = {}
    for origin, of_log in (each.values() for each in found.pop("logs")):
        logs[origin] = (*logs.get(origin, ()), of_log)
        # After an incarnation the log signs with the same key under the new origin's name, and
        # operators copy the line that they have. The origin is signed, so this adds no log.
        if of_log.name != origin and is_name(origin):
            logs[origin] += (of_log._replace(name=origin),)
    tls = TlsFiles(certificate, key) if certificate and key else None
    return WitnessConfiguration(**found, logs=logs, tls=tls)
