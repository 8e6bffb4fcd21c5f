"""The keys of the settings file with their sentences, and the example files.

The command line prints both. The keys come from the dataclasses in `sidecar.settings`; a test
compares the complete example, a file beside this one, with them. Knows nothing of how a value is
read.
"""

import json
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from policies.definitions.definition import DefinitionFaults, Node
from policies.definitions.load import parse_tree
from policies.ground.settings import SettingsError, entry, sentences
from sidecar.config.sections import address_fault
from sidecar.settings.authzen import AuthzenSettings
from sidecar.settings.doors import Door
from sidecar.settings.model import SidecarSettings
from sidecar.settings.spool import SpoolSettings

EXAMPLE = Path(__file__).with_name("sidecar.example.yaml")
EXAMPLES = {"full": EXAMPLE, "minimal": Path(__file__).with_name("minimal.example.yaml")}
REQUIRED = frozenset(
    {
        "control",
        "enrol.token_file",
        "key_file",
        "agent.role",
        "agent.key_file",
        "listen_tls.certificate",
        "listen_tls.key",
        "traces.endpoint",
        "authzen.resources.type",
        "authzen.actions.name",
        "sources.alias",
        "sources.kind",
        "sources.upstream",
        "sources.listen",
        "sources.sensitivity",
        "sources.routes.method",
        "sources.routes.path",
        "sources.routes.class",
        "sources.methods.name",
        "sources.listen_tls.certificate",
        "sources.listen_tls.key",
        "sources.terminate.certificate",
        "sources.terminate.key",
        "doors.name",
        "doors.protocol",
        "doors.source",
        "doors.agent.role",
        "doors.listen_tls.certificate",
        "doors.listen_tls.key",
    }
)
"""Keys without a default. `sources.listen` is required unless `forward_proxy`, `transparent` or one
of `doors` leads to the source."""

_SECTIONS = tuple(
    each.__module__ for each in (SidecarSettings, SpoolSettings, Door, AuthzenSettings)
)

_CONTROL = "control: http://127.0.0.1:8700        # "
_UPSTREAM = "upstream: http://127.0.0.1:8000   # "


def example(name: str, environ: Mapping[str, str], upstream: str | None = None) -> str:
    """Return the text of an example. The minimal one names the data source at `upstream`, if given;
    the control API of `SLUICE_URL`, if that is set; and for https the authority of `SLUICE_CA`.
    Raises `SettingsError` if one of the first two is no address."""
    text = EXAMPLES[name].read_text(encoding="utf-8")
    if name != "minimal":
        return text
    url = environ.get("SLUICE_URL")
    given = (("--upstream", upstream), ("SLUICE_URL", url))
    complaints = [f"{where}: {fault}" for where, each in given if (fault := _unwritable(each))]
    if complaints:
        raise SettingsError(complaints)
    if upstream:
        text = text.replace(_UPSTREAM, f"upstream: {upstream:<23} # ", 1)
    if not url:
        return text
    text = text.replace(_CONTROL, f"control: {url:<28} # ", 1)
    ca = environ.get("SLUICE_CA")
    if not ca or not url.startswith("https:"):
        return text
    # The settings file need not be in the folder in which the variable was set. JSON is YAML.
    tls = f"control_tls: {{ca: {json.dumps(str(Path(ca).absolute()))}}}\n"
    return text.replace("key_file:", f"{tls}key_file:", 1)


def _unwritable(url: str | None) -> str | None:
    """Return why an address can't be written into the example; None if it can."""
    if not url:
        return None
    # It is written without quotes: YAML would read these as something else than an address.
    if url.endswith(":") or any(each.isspace() for each in url):
        return "must be only scheme, host, port and path"
    return address_fault(url, ("http", "https"))


def keys(declared: type[Any] = SidecarSettings, within: str = "") -> Iterator[tuple[str, str]]:
    """Yield each key with its levels, such as `spool.mode`, and its sentence. A mapping precedes
    its members. List items and names that the operator chooses add no level, as in
    `sources.names.sensitivity`."""
    described = sentences(declared)
    hints = typing.get_type_hints(declared)
    for field in fields(declared):
        key = within + field.name.rstrip("_")  # `class_` is the key `class`
        yield key, described[field.name]
        inner = _section(hints[field.name])
        if inner is not None:
            yield from keys(inner, f"{key}.")


def text() -> str:
    """Return the text of `--help`: each key with its default and sentence."""
    defaults, described = _defaults(), dict(keys())
    parents = {key.rpartition(".")[0] for key in described}

    def default(key: str) -> str:
        if key in parents:
            return "a mapping or list of the following"
        return "required" if key in REQUIRED else defaults.get(key, "not set")

    return "\n".join(entry(key, default(key), sentence) for key, sentence in described.items())


def _section(hint: Any) -> type[Any] | None:
    """Return the settings dataclass in a type hint, if there is one."""
    if is_dataclass(hint) and isinstance(hint, type):
        # A `ListenAddress` is a dataclass too, but one value for an operator.
        return hint if hint.__module__ in _SECTIONS else None
    # A union or a collection: look at the types that it is made of.
    return next(filter(None, map(_section, typing.get_args(hint))), None)


def _defaults() -> dict[str, str]:
    """Return the values in the example. A test proves that they are the defaults of optional
    keys."""
    tree = parse_tree(EXAMPLE.read_text(encoding="utf-8"), DefinitionFaults(EXAMPLE.name))
    return {} if tree is None else dict(_scalars(tree, ""))


def _scalars(node: Node, name: str) -> Iterator[tuple[str, str]]:
    if node.tag == "map":
        for key, each in node.value.items():
            yield from _scalars(each, f"{name}.{key}" if name else key)
    elif node.tag == "list":
        for each in node.value:
            yield from _scalars(each, name)
    else:
        yield name, str(node.value)
