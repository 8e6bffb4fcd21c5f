"""Reads the sidecar's settings file (`CONTRACT.md`, Settings) into a tree that knows the line of
every value, and applies the environment to the tree.

Raises all complaints at once (`SettingsError`), before a port is bound. The environment and the
host's name are arguments. `sidecar.config.settings_reader` knows the keys.
"""

import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from policies.definitions.definition import (
    FROM_ENVIRONMENT,
    DefinitionFault,
    DefinitionFaults,
    Node,
    printable,
)
from policies.definitions.load import parse_tree, read_text
from policies.ground.errors import worded
from policies.ground.settings import SettingsError
from sidecar.config.settings_reader import SETTINGS, read_settings
from sidecar.settings.model import SidecarSettings


def file_tree(path: Path, faults: DefinitionFaults) -> Node | None:
    """Return the parsed tree of the file at `path`; None after a complaint."""
    with suppress(OSError):  # `read_text` reports why the path can't be examined
        if not path.exists():
            example = f"`sluice sidecar --example > {shlex.quote(str(path))}`"
            faults.add(0, "", f"does not exist; {example} writes one to start with")
            return None
    try:
        text = read_text(path, faults)
        return None if text is None else parse_tree(text, faults)
    except DefinitionFaults.TooManyFaults:
        return None


def text_tree(text: str, faults: DefinitionFaults) -> Node | None:
    """Return the parsed tree of a settings text from an environment variable; None after a
    complaint."""
    if not text.strip():
        faults.add(0, "", "is not set in the environment, or empty")
        return None
    try:
        return parse_tree(text, faults)
    except DefinitionFaults.TooManyFaults:
        return None


def descend(node: Node, levels: list[str]) -> dict[str, Node] | None:
    """Return the mapping that the keys in `levels` lead to, created if the file has none; None if
    another kind of value is there."""
    for level in levels:
        # Only items that the file has: a gap in the numbers would leave a source without most keys.
        if node.tag == "list" and level.isdigit() and int(level) < len(node.value):
            node = node.value[int(level)]
        elif node.tag == "map":
            members: dict[str, Node] = node.value
            if level not in members or members[level].tag == "null":
                members[level] = Node(0, "map", {})
            node = members[level]
        else:
            return None
    found: dict[str, Node] | None = node.value if node.tag == "map" else None
    return found


def full_name(levels: list[str]) -> str:
    name = ""
    for level in levels:
        name += f"[{level}]" if level.isdigit() and name else f"{'.' if name else ''}{level}"
    return name


PREFIX = "SLUICE_SIDECAR_"


def read(path: Path, environ: Mapping[str, str], host: str) -> SidecarSettings:
    """Return the settings in the file at `path`, overridden by `environ`; `host` is the default
    `id`. Raises `SettingsError` with every complaint."""
    return _FileReader(path, None, environ).read(host)


def read_variable(name: str, environ: Mapping[str, str], host: str) -> SidecarSettings:
    """Return the settings like `read`, but take the text of the file from the environment variable
    `name`. Relative paths are relative to the working directory."""
    rest = {variable: value for variable, value in environ.items() if variable != name}
    return _FileReader(Path(name), environ.get(name, ""), rest).read(host)


def holds_password(path: Path) -> bool:
    """Return whether the settings file at `path` itself holds the password of Redis. A password
    from the environment does not count."""
    tree = file_tree(path, DefinitionFaults(str(path)))
    if tree is None or tree.tag != "map":
        return False
    redis = _peek(tree, "redis")
    return redis is not None and redis.password is not None


def _peek(tree: Node, key: str) -> Any:
    """Return the value of one key before all keys are read; None if it is absent. Complaints about
    it are left to the full reading."""
    node = tree.value.get(key)
    absent = node is None or node.tag == "null"
    return None if absent else SETTINGS.keys[key].form.read(key, node, DefinitionFaults(""))


class _Complaints(DefinitionFaults):
    """Collects faults, and gives each the full name of its key and its line. A value from the
    environment has no line."""

    def __init__(self, complain: Callable[[int, str, str], None], base: Path) -> None:
        super().__init__("", base)
        self._complain = complain

    def add(self, line: int, key: str, message: str) -> None:
        self.found.append(DefinitionFault(self.file, line, key, message))
        self._complain(line, key, message)

    def place(self, key: str, step: str | int) -> str:
        if isinstance(step, int):
            return f"{key}[{step}]"
        return f"{key}.{printable(step)}" if key else printable(step)


class _FileReader:
    """Reads one settings file. `text` is its content; None if it has to be read from `path`."""

    def __init__(self, path: Path, text: str | None, environ: Mapping[str, str]) -> None:
        self._base = path.parent
        self._file = str(path)
        self._faults = DefinitionFaults(self._file)
        self._variables: dict[str, str] = {}
        self._complaints: list[str] = []
        self._sources_file: Path | None = None
        self._of_agent_file: dict[str, Path] = {}
        self._root = Node(1, "map", {})
        tree = file_tree(path, self._faults) if text is None else text_tree(text, self._faults)
        if tree is not None and tree.tag == "map":
            self._root = tree
        elif tree is not None:
            self._faults.add(tree.line, "", "must be a mapping of keys to values")
        self._override(environ)
        if not self._faults.found:
            self._replace_sources()
        if not self._faults.found:
            self._complete_agent()

    def read(self, host: str) -> SidecarSettings:
        if self._faults.found:
            # Complaints about keys would mislead: they may follow from the broken YAML.
            raise SettingsError([_plain(fault) for fault in self._faults.found])
        settings = read_settings(self._root, _Complaints(self._complain, self._base), host)
        if self._complaints:
            raise SettingsError(self._complaints)
        return settings

    def _replace_sources(self) -> None:
        """Replace the list `sources` by the list in the first file of `sources_files` that
        exists."""
        for path in map(self._base.joinpath, _peek(self._root, "sources_files") or ()):
            # `is_file` follows links: a ConfigMap's files are links, and an optional ConfigMap that
            # is missing leaves the folder empty.
            try:
                if not path.is_file():
                    continue
            except OSError as error:  # such as a folder that may not be entered
                self._faults = DefinitionFaults(str(path))
                self._faults.add(0, "", f"can't be read: {worded(error)}")
                return
            self._faults = DefinitionFaults(str(path))
            self._sources_file = path
            tree = file_tree(path, self._faults)
            if tree is not None and tree.tag == "map" and tree.value.keys() == {"sources"}:
                tree = tree.value["sources"]
            if tree is not None and tree.tag != "list" and not self._faults.found:
                self._faults.add(tree.line, "", "must be a list of sources, or a key `sources`")
            if tree is not None:
                self._root.value["sources"] = tree
            return

    def _complete_agent(self) -> None:
        """Override the keys of `agent` by those in the file `agent_file`."""
        named = _peek(self._root, "agent_file")
        if named is None:
            return
        path = self._base / named
        self._faults = DefinitionFaults(str(path))
        tree = file_tree(path, self._faults)
        if tree is not None and tree.tag != "map":
            self._faults.add(tree.line, "", "must be a mapping with keys of `agent`")
        elif tree is not None:
            agent = self._root.value.get("agent")
            own = agent.value if agent is not None and agent.tag == "map" else {}
            self._root.value["agent"] = Node(tree.line, "map", {**own, **tree.value})
            self._of_agent_file = {f"agent.{key}": path for key in tree.value}

    def _override(self, environ: Mapping[str, str]) -> None:
        """Put the value of each variable `SLUICE_SIDECAR_<KEY>` into the tree. Empty variables are
        ignored."""
        # Set it in the tree, not in the result: both kinds of values then pass the same checks.
        for variable in sorted(environ):
            # Compose files and charts often pass unset variables on as empty strings.
            if not variable.startswith(PREFIX) or not environ[variable]:
                continue
            levels = variable.removeprefix(PREFIX).lower().split("__")
            parent = descend(self._root, levels[:-1])
            if parent is None:
                self._complaints.append(
                    f"{variable}: the file has no such key; `__` separates levels, and a number "
                    "selects an item of a list"
                )
                continue
            parent[levels[-1]] = Node(0, FROM_ENVIRONMENT, environ[variable])
            # A complaint about this key then names the variable instead of a line.
            self._variables[full_name(levels)] = variable

    def _complain(self, line: int, key: str, fault: str) -> None:
        if key in self._variables:
            self._complaints.append(f"{self._variables[key]}: {fault}")
        else:
            of_sources = self._sources_file is not None and key.startswith("sources[")
            file = str(self._sources_file) if of_sources else self._file
            file = str(self._of_agent_file.get(key, file))
            position = f"{file}:{line}" if line else file
            self._complaints.append(f"{position}: {key}: {fault}")


def _plain(fault: DefinitionFault) -> str:
    # The YAML reader is shared with policy files; its advice on an empty one doesn't apply here.
    return str(fault._replace(message=fault.message.partition("; `policies")[0]))
