"""Reads the sidecar's settings file (contract, section 5) and applies the environment to it.

Knows every key. Raises all complaints at once (`SettingsError`), before a port is bound. The
environment and the host's name are arguments.
"""

from collections.abc import Mapping
from pathlib import Path

from policies.definitions.definition import DefinitionFault, DefinitionFaults, Node
from policies.ground.listen_address import ListenAddress
from policies.ground.settings import SettingsError
from sidecar.config.listeners import loopback_of, refuse_conflicts
from sidecar.config.sections import FROM_ENVIRONMENT, Section
from sidecar.config.sources import read_source
from sidecar.config.tls import check_redis, client_tls
from sidecar.config.tree import descend, file_tree, full_name, text_tree
from sidecar.platform.key_file import read_key
from sidecar.settings.model import (
    COMPRESSIONS,
    PERMISSIONS,
    AgentSettings,
    EnrolSettings,
    SidecarSettings,
    TraceSettings,
)
from sidecar.settings.spool import SPOOL_MODES, SpoolSettings

PREFIX = "SLUICE_SIDECAR_"


def read(path: Path, environ: Mapping[str, str], host: str) -> SidecarSettings:
    """The settings in the file at `path`, overridden by `environ`; `host` is the default `id`.
    Raises `SettingsError` with every complaint."""
    return _FileReader(path, None, environ).read(host)


def read_variable(name: str, environ: Mapping[str, str], host: str) -> SidecarSettings:
    """Like `read`, but the text of the file is in the environment variable `name`. Relative paths
    are relative to the working directory."""
    rest = {variable: value for variable, value in environ.items() if variable != name}
    return _FileReader(Path(name), environ.get(name, ""), rest).read(host)


class _FileReader:
    """`text` is the file's; None if it is to be read from `path`."""

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
        top = Section(self._root, "", self._complain)
        enrol = self._enrol(top)
        has_proxy = top.has("forward_proxy") or top.has("transparent")
        settings = SidecarSettings(
            id=top.identifier("id") or host,
            control=top.address("control"),
            control_tls=client_tls(top, "control_tls", "control", self._base),
            redis=top.redis("redis"),
            compress=top.choice("compress", COMPRESSIONS, "auto"),
            key_file=None if enrol is not None else self._key_file(top),
            listen=top.listen("listen", "127.0.0.1:8710") or ListenAddress("127.0.0.1", 0),
            metrics_listen=top.listen("metrics_listen"),
            quit_listen=loopback_of(top, "quit_listen"),
            forward_proxy=top.listen("forward_proxy"),
            transparent=top.listen("transparent"),
            redirect_check_seconds=top.seconds("redirect_check_seconds", 0, 0, 3600),
            encrypted_hello=top.choice("encrypted_hello", PERMISSIONS, "deny"),
            cache=top.path("cache", self._base, "cache"),
            staleness_seconds=top.seconds("staleness_seconds", 30, 1, 86400),
            drain_seconds=top.seconds("drain_seconds", 10, 0, 3600),
            spool=self._spool(top.section("spool")),
            agent=self._agent(top.section("agent")),
            agent_file=self._base / named if (named := top.text("agent_file")) else None,
            enrol=enrol,
            sources_files=self._sources_files(top),
            traces=self._traces(top.section("traces")),
            sources=tuple(
                read_source(section, self._base, has_proxy=has_proxy)
                for section in top.sections("sources")
            ),
        )
        top.close()
        if settings.sources and settings.agent is None and enrol is None:
            top.complain("agent", "is required with `sources`: requests there are the agent's")
        for listener in ("forward_proxy", "transparent"):
            # Where files may bring sources, an agent that reads nothing is a choice: all is denied.
            none = not settings.sources and not settings.sources_files
            if getattr(settings, listener) is not None and none:
                top.complain(listener, "leads to no source; add one to `sources`")
        if settings.redirect_check_seconds and settings.transparent is None:
            top.complain("redirect_check_seconds", "needs `transparent`, whose port it checks")
        # Last, because these compare settings with each other and expect each to have been read.
        check_redis(top, settings.redis)
        refuse_conflicts(top, settings)
        if self._complaints:
            raise SettingsError(self._complaints)
        return settings

    def _sources_files(self, top: Section) -> tuple[Path, ...]:
        return tuple(self._base / each for each in top.texts("sources_files"))

    def _replace_sources(self) -> None:
        """Put the list of the first of `sources_files` that exists in place of `sources`."""
        quiet = Section(self._root, "", lambda *_: None)  # `read` complains of what is wrong
        for path in self._sources_files(quiet):
            # `is_file` follows links: a ConfigMap's files are links, and an optional ConfigMap that
            # is missing leaves the folder empty.
            if not path.is_file():
                continue
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
        """Put the keys in `agent_file` in place of those of `agent`."""
        named = Section(self._root, "", lambda *_: None).text("agent_file")
        if not named:
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
        """Put each `SLUICE_SIDECAR_<KEY>` into the tree; ignore empty ones."""
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

    def _key_file(self, section: Section) -> Path:
        path = section.path("key_file", self._base)
        if not section.complained("key_file"):
            try:
                read_key(path)
            except ValueError as error:
                section.complain("key_file", str(error))
        return path

    def _enrol(self, top: Section) -> EnrolSettings | None:
        section = top.section("enrol")
        if not section.given:
            return None
        enrol = EnrolSettings(section.path("token_file", self._base))
        section.close()
        for key in ("key_file", "agent"):
            # Two answers to the question who this sidecar is: one of them would be ignored.
            if top.has(key):
                top.complain(
                    key, "must be absent with `enrol`, which brings the keys and the agent"
                )
        return enrol

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


def _plain(fault: DefinitionFault) -> str:
    # The YAML reader is shared with policy files; its advice on an empty one doesn't apply here.
    return str(fault._replace(message=fault.message.partition("; `policies")[0]))
