"""Reads the sidecar's settings file (contract, section 5) and applies the environment to it.

Knows every key. Raises all complaints at once (`SettingsError`), before a port is bound. The
environment and the host's name are arguments.
"""

import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from policies.definitions.definition import DefinitionFault, DefinitionFaults, Node
from policies.definitions.load import parse_tree, read_text
from policies.ground.listen_address import ListenAddress
from policies.ground.settings import SettingsError
from sidecar.config.listeners import refuse_conflicts
from sidecar.config.sections import FROM_ENVIRONMENT, Section
from sidecar.config.sources import read_source
from sidecar.config.tls import check_redis, client_tls
from sidecar.platform.key_file import read_key
from sidecar.settings.model import (
    COMPRESSIONS,
    PERMISSIONS,
    AgentSettings,
    SidecarSettings,
    TraceSettings,
)
from sidecar.settings.spool import SPOOL_MODES, SpoolSettings

PREFIX = "SLUICE_SIDECAR_"


def read(path: Path, environ: Mapping[str, str], host: str) -> SidecarSettings:
    """The settings in the file at `path`, overridden by `environ`; `host` is the default `id`.
    Raises `SettingsError` with every complaint."""
    return _FileReader(path, environ).read(host)


class _FileReader:
    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self._base = path.parent
        self._faults = DefinitionFaults(str(path))
        self._variables: dict[str, str] = {}
        self._complaints: list[str] = []
        self._root = Node(1, "map", {})
        tree = self._tree(path)
        if tree is not None and tree.tag == "map":
            self._root = tree
        elif tree is not None:
            self._faults.add(tree.line, "", "must be a mapping of keys to values")
        self._override(environ)

    def read(self, host: str) -> SidecarSettings:
        if self._faults.found:
            # Complaints about keys would mislead: they may follow from the broken YAML.
            raise SettingsError([_plain(fault) for fault in self._faults.found])
        top = Section(self._root, "", self._complain)
        has_proxy = top.has("forward_proxy") or top.has("transparent")
        settings = SidecarSettings(
            id=top.identifier("id") or host,
            control=top.address("control"),
            control_tls=client_tls(top, "control_tls", "control", self._base),
            redis=top.redis("redis"),
            compress=top.choice("compress", COMPRESSIONS, "auto"),
            key_file=self._key_file(top),
            listen=top.listen("listen", "127.0.0.1:8710") or ListenAddress("127.0.0.1", 0),
            metrics_listen=top.listen("metrics_listen"),
            forward_proxy=top.listen("forward_proxy"),
            transparent=top.listen("transparent"),
            redirect_check_seconds=top.seconds("redirect_check_seconds", 0, 0, 3600),
            encrypted_hello=top.choice("encrypted_hello", PERMISSIONS, "deny"),
            cache=top.path("cache", self._base, "cache"),
            staleness_seconds=top.seconds("staleness_seconds", 30, 1, 86400),
            drain_seconds=top.seconds("drain_seconds", 10, 0, 3600),
            spool=self._spool(top.section("spool")),
            agent=self._agent(top.section("agent")),
            traces=self._traces(top.section("traces")),
            sources=tuple(
                read_source(section, self._base, has_proxy=has_proxy)
                for section in top.sections("sources")
            ),
        )
        top.close()
        if settings.sources and settings.agent is None:
            top.complain("agent", "is required with `sources`: requests there are the agent's")
        for listener in ("forward_proxy", "transparent"):
            if getattr(settings, listener) is not None and not settings.sources:
                top.complain(listener, "leads to no source; add one to `sources`")
        if settings.redirect_check_seconds and settings.transparent is None:
            top.complain("redirect_check_seconds", "needs `transparent`, whose port it checks")
        # Last, because these compare settings with each other and expect each to have been read.
        check_redis(top, settings.redis)
        refuse_conflicts(top, settings)
        if self._complaints:
            raise SettingsError(self._complaints)
        return settings

    def _tree(self, path: Path) -> Node | None:
        with suppress(OSError):  # `read_text` reports why the path can't be examined
            if not path.exists():
                example = f"`sluice sidecar --example > {shlex.quote(str(path))}`"
                self._faults.add(0, "", f"does not exist; {example} writes one to start with")
                return None
        try:
            text = read_text(path, self._faults)
            return None if text is None else parse_tree(text, self._faults)
        except DefinitionFaults.TooManyFaults:
            return None

    def _override(self, environ: Mapping[str, str]) -> None:
        """Put each `SLUICE_SIDECAR_<KEY>` into the tree; ignore empty ones."""
        # Set it in the tree, not in the result: both kinds of values then pass the same checks.
        for variable in sorted(environ):
            # Compose files and charts often pass unset variables on as empty strings.
            if not variable.startswith(PREFIX) or not environ[variable]:
                continue
            levels = variable.removeprefix(PREFIX).lower().split("__")
            parent = _descend(self._root, levels[:-1])
            if parent is None:
                self._complaints.append(
                    f"{variable}: the file has no such key; `__` separates levels, and a number "
                    "selects an item of a list"
                )
                continue
            parent[levels[-1]] = Node(0, FROM_ENVIRONMENT, environ[variable])
            # A complaint about this key then names the variable instead of a line.
            self._variables[_full_name(levels)] = variable

    def _complain(self, line: int, key: str, fault: str) -> None:
        if key in self._variables:
            self._complaints.append(f"{self._variables[key]}: {fault}")
        else:
            position = f"{self._faults.file}:{line}" if line else self._faults.file
            self._complaints.append(f"{position}: {key}: {fault}")

    def _key_file(self, section: Section) -> Path:
        path = section.path("key_file", self._base)
        if not section.complained("key_file"):
            try:
                read_key(path)
            except ValueError as error:
                section.complain("key_file", str(error))
        return path

    def _agent(self, section: Section) -> AgentSettings | None:
        if not section.given:
            return None
        role = section.identifier("role")
        if role is None and not section.complained("role"):
            section.complain("role", "is required")
        agent = AgentSettings(section.identifier("id"), role or "", self._key_file(section))
        section.close()
        return agent

    def _traces(self, section: Section) -> TraceSettings | None:
        if not section.given:
            return None
        traces = TraceSettings(
            section.address("endpoint"),
            section.share("sample_ratio", 0.01),
            client_tls(section, "tls", "endpoint", self._base),
        )
        section.close()
        return traces

    def _spool(self, section: Section) -> SpoolSettings:
        default = SpoolSettings(self._base)
        spool = SpoolSettings(
            dir=section.path("dir", self._base, "spool"),
            mode=section.choice("mode", SPOOL_MODES, default.mode),
            max_bytes=section.integer("max_bytes", default.max_bytes, 0),
            segment_bytes=section.integer("segment_bytes", default.segment_bytes, 0),
            timeout_ms=section.integer("timeout_ms", default.timeout_ms, 0),
            memory_bytes=section.integer("memory_bytes", default.memory_bytes, 0),
        )
        for key, fault in spool.complaints().items():
            section.complain(key, fault)
        section.close()
        return spool


def _descend(node: Node, levels: list[str]) -> dict[str, Node] | None:
    """The mapping at `levels`, created if the file has none; None if another kind of value is
    there."""
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


def _full_name(levels: list[str]) -> str:
    name = ""
    for level in levels:
        name += f"[{level}]" if level.isdigit() and name else f"{'.' if name else ''}{level}"
    return name


def _plain(fault: DefinitionFault) -> str:
    # The YAML reader is shared with policy files; its advice on an empty one doesn't apply here.
    return str(fault._replace(message=fault.message.partition("; `policies")[0]))
