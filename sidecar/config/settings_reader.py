"""Reads every key of the sidecar's settings, and compares them with each other.

The same reading tells what the keys are: `sidecar.config.schema` runs it over a `Section` that
notes what is asked of it.
"""

from pathlib import Path

from policies.ground.addresses import ListenAddress
from sidecar.config.authzen import read_authzen
from sidecar.config.doors import check_doors, read_door
from sidecar.config.listeners import hosts_of, loopback_of, refuse_conflicts
from sidecar.config.sections import Section
from sidecar.config.sources import read_source
from sidecar.config.tls import check_redis, client_tls, pair_of
from sidecar.platform.key_file import read_key
from sidecar.settings.model import (
    COMPRESSIONS,
    DEFAULT_CONNECTIONS,
    HALF_CLOSES,
    PERMISSIONS,
    AgentSettings,
    EnrolSettings,
    SidecarSettings,
    TraceSettings,
)
from sidecar.settings.spool import SPOOL_MODES, SpoolSettings


def read_settings(top: Section, base: Path, host: str) -> SidecarSettings:
    """Return the settings in `top`, which collects the complaints about them. Paths are relative to
    `base`; `host` is the default `id`."""
    enrol = _enrol(top, base)
    has_proxy = top.has("forward_proxy") or top.has("transparent")
    doors = tuple(read_door(section, base) for section in top.sections("doors"))
    asked_about = frozenset(door.source for door in doors)
    settings = SidecarSettings(
        id=top.identifier("id") or host,
        control=top.address("control"),
        control_tls=client_tls(top, "control_tls", "control", base),
        redis=top.redis("redis", base),
        compress=top.choice("compress", COMPRESSIONS, "auto"),
        key_file=None if enrol is not None else _key_file(top, base),
        listen=top.listen("listen", "127.0.0.1:8710") or ListenAddress("127.0.0.1", 0),
        hosts=hosts_of(top),
        listen_tls=pair_of(top, "listen_tls", base),
        metrics_listen=top.listen("metrics_listen"),
        quit_listen=loopback_of(top, "quit_listen"),
        forward_proxy=top.listen("forward_proxy"),
        transparent=top.listen("transparent"),
        redirect_check_seconds=top.seconds("redirect_check_seconds", 0, 0, 3600),
        half_close=top.choice("half_close", HALF_CLOSES, "cancel"),
        encrypted_hello=top.choice("encrypted_hello", PERMISSIONS, "deny"),
        cache=top.path("cache", base, "cache"),
        staleness_seconds=top.seconds("staleness_seconds", 30, 1, 86400),
        drain_seconds=top.seconds("drain_seconds", 10, 0, 3600),
        max_connections=top.integer("max_connections", DEFAULT_CONNECTIONS, 16),
        spool=_spool(top.section("spool"), base),
        agent=_agent(top.section("agent"), base),
        agent_file=base / named if (named := top.text("agent_file")) else None,
        enrol=enrol,
        least_documents=top.switch("least_documents", "on"),
        sources_files=sources_files(top, base),
        traces=_traces(top.section("traces"), base),
        authzen=read_authzen(top.section("authzen"), base),
        sources=tuple(
            read_source(section, base, has_proxy=has_proxy, asked_about=asked_about)
            for section in top.sections("sources")
        ),
        doors=doors,
    )
    top.close()
    led_to = has_proxy or any(source.listen is not None for source in settings.sources)
    if settings.sources and led_to and settings.agent is None and enrol is None:
        top.complain("agent", "is required with `sources`: requests there are the agent's")
    for listener in ("forward_proxy", "transparent"):
        # Where files may bring sources, an agent that reads nothing is a choice: all is denied.
        none = not settings.sources and not settings.sources_files
        if getattr(settings, listener) is not None and none:
            top.complain(listener, "leads to no source; add one to `sources`")
    if settings.redirect_check_seconds and settings.transparent is None:
        top.complain("redirect_check_seconds", "needs `transparent`, whose port it checks")
    _check_least_documents(top, settings)
    # Last, because these compare settings with each other and expect each to have been read.
    check_redis(top, settings.redis)
    refuse_conflicts(top, settings)
    check_doors(top, settings)
    return settings


def sources_files(top: Section, base: Path) -> tuple[Path, ...]:
    return tuple(base / each for each in top.texts("sources_files"))


def _key_file(section: Section, base: Path) -> Path:
    path = section.path("key_file", base)
    if not section.complained("key_file"):
        try:
            read_key(path)
        except ValueError as error:
            section.complain("key_file", str(error))
    return path


def _enrol(top: Section, base: Path) -> EnrolSettings | None:
    section = top.section("enrol")
    if not section.given:
        return None
    enrol = EnrolSettings(section.path("token_file", base))
    section.close()
    for key in ("key_file", "agent"):
        # Both say which agent this sidecar serves and with which keys: one of them would be
        # ignored.
        if top.has(key):
            top.complain(key, "must be absent with `enrol`, which brings the keys and the agent")
    return enrol


def _check_least_documents(top: Section, settings: SidecarSettings) -> None:
    with_both = settings.enrol is not None and settings.redis is not None
    if with_both and settings.least_documents == "on":
        top.complain(
            "redis",
            "can't be used with `enrol`: Redis can't tell readers apart, so everyone who has "
            "its password reads the policies of all agents. Remove it, and the sidecar takes its "
            "own agent's documents from `control`; or choose `least_documents: off`",
        )
    if not with_both and settings.least_documents == "off":
        top.complain(
            "least_documents",
            "`off` needs `enrol` and `redis`: a sidecar that enrols is given its own agent's "
            "documents by `control`, and one with `key_file` all of them",
        )


def _agent(section: Section, base: Path) -> AgentSettings | None:
    if not section.given:
        return None
    role = section.identifier("role", required=True)
    agent = AgentSettings(section.identifier("id"), role or "", _key_file(section, base))
    section.close()
    return agent


def _traces(section: Section, base: Path) -> TraceSettings | None:
    if not section.given:
        return None
    traces = TraceSettings(
        section.address("endpoint"),
        section.share("sample_ratio", 0.01),
        client_tls(section, "tls", "endpoint", base),
    )
    section.close()
    return traces


def _spool(section: Section, base: Path) -> SpoolSettings:
    default = SpoolSettings(base)
    spool = SpoolSettings(
        dir=section.path("dir", base, "spool"),
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
