"""Builds the help on the settings file: its keys with their descriptions, its JSON Schema, and the
example files.

The command line prints keys and examples. A test compares the complete example, a file beside this
one, with the keys.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from policies.definitions.definition import DefinitionFaults, Node
from policies.definitions.forms import Schema
from policies.definitions.load import parse_tree
from policies.definitions.records import Declared, Key
from policies.ground.settings import SettingsError, entry
from sidecar.config.forms import address_fault
from sidecar.config.settings_reader import SETTINGS

EXAMPLE = Path(__file__).with_name("sidecar.example.yaml")
EXAMPLES = {"full": EXAMPLE, "minimal": Path(__file__).with_name("minimal.example.yaml")}
_CONTROL = "control: http://127.0.0.1:8700        # "
_UPSTREAM = "upstream: http://127.0.0.1:8000   # "


def example(name: str, environ: Mapping[str, str], upstream: str | None = None) -> str:
    """Return the text of an example. The minimal one is adapted: to the data source at `upstream`
    if given, to the control API at `SLUICE_URL` if that is set, and for https to the certificate
    authority in `SLUICE_CA`. Raises `SettingsError` if one of the first two is not an address."""
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
    """Return the reason why an address can't be written into the example; None if it can."""
    if not url:
        return None
    # It is written without quotes: YAML would read these as something else than an address.
    if url.endswith(":") or any(each.isspace() for each in url):
        return "must be only scheme, host, port and path"
    return address_fault(url)


def keys() -> Iterator[tuple[str, str]]:
    """Yield the full name of each key, such as `spool.mode`, and its description. A mapping
    precedes its members. List items and names that the operator chooses add no level, as in
    `sources.names.sensitivity`."""
    return ((name, sentence) for name, _, sentence in _keys(SETTINGS, ""))


def _keys(form: Any, within: str) -> Iterator[tuple[str, Key, str]]:
    while not isinstance(form, Declared):  # a list, or a mapping of names
        if (form := getattr(form, "item", None)) is None:
            return
    sentences = form.says()
    for name, key in form.keys.items():
        yield within + name, key, sentences[name]
        yield from _keys(key.form, f"{within}{name}.")


REQUIRED = frozenset(name for name, key, _ in _keys(SETTINGS, "") if key.required) | {
    "key_file",
    "sources.listen",
}
"""Keys without a default. `key_file` is required unless there is `enrol`; `sources.listen`, unless
`forward_proxy`, `transparent` or one of `doors` leads to the source."""


def settings_schema() -> Schema:
    """Return the JSON Schema (2020-12) of the whole file."""
    return {
        **SETTINGS.schema(),
        # A sidecar that enrols has no key of its own in the settings.
        "if": {"properties": {"enrol": {"type": "object"}}, "required": ["enrol"]},
        "else": {"required": ["key_file"]},
    }


def text() -> str:
    """Return the text of `--help`: each key with its default and description."""
    defaults, described = _defaults(), dict(keys())
    parents = {key.rpartition(".")[0] for key in described}

    def default(key: str) -> str:
        if key in parents:
            return "a mapping or list of the following"
        return "required" if key in REQUIRED else defaults.get(key, "not set")

    return "\n".join(entry(key, default(key), sentence) for key, sentence in described.items())


def _defaults() -> dict[str, str]:
    """Return the values in the complete example. A test proves that those of optional keys are
    their defaults."""
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
