"""Declares every key of the sidecar's settings, and checks the keys against each other."""

from typing import Any

from policies.definitions.definition import DefinitionFaults, Node
from policies.definitions.forms import IDENTIFIER, FilePath
from policies.definitions.records import Key, Section, declared
from policies.ground.addresses import ListenAddress
from sidecar.config.authzen import AUTHZEN
from sidecar.config.doors import DOOR, check_doors
from sidecar.config.forms import (
    ADDRESS,
    PAIR,
    REDIS,
    UPSTREAM_TLS,
    Number,
    Switch,
    Texts,
    check_client_tls,
    check_redis,
    sections,
)
from sidecar.config.listeners import HOSTS, LOOPBACK, refuse_conflicts
from sidecar.config.sources import SOURCE
from sidecar.platform.key_file import read_key
from sidecar.settings.model import AgentSettings, EnrolSettings, SidecarSettings, TraceSettings
from sidecar.settings.sections import SpoolSettings


def _spool(section: Section, values: dict[str, Any]) -> SpoolSettings:
    spool = SpoolSettings(**values)
    for key, fault in spool.complaints().items():
        section.complain(key, fault)
    return spool


def _traces(section: Section, values: dict[str, Any]) -> TraceSettings:
    check_client_tls(section, "tls", "endpoint", values)
    return TraceSettings(**values)


_KEY_FILE = FilePath("fault", read_key)
_SPOOL = declared(
    SpoolSettings,
    _spool,
    dir=Key(FilePath("folder"), default="spool"),
    max_bytes=Number(0),
    segment_bytes=Number(0),
    timeout_ms=Number(0),
    memory_bytes=Number(0),
)
_TRACES = declared(
    TraceSettings, _traces, endpoint=ADDRESS, sample_ratio=Number(0, 1), tls=UPSTREAM_TLS
)
SETTINGS = declared(
    SidecarSettings,
    control=ADDRESS,
    control_tls=UPSTREAM_TLS,
    redis=REDIS,
    # Required unless the sidecar enrols.
    key_file=Key(_KEY_FILE, nullable=False),
    id=Key(IDENTIFIER),
    hosts=HOSTS,
    listen_tls=PAIR,
    quit_listen=LOOPBACK,
    redirect_check_seconds=Number(0, 3600, " seconds"),
    cache=Key(FilePath("folder"), default="cache"),
    staleness_seconds=Number(1, 86400, " seconds"),
    drain_seconds=Number(0, 3600, " seconds"),
    max_connections=Number(16),
    spool=Key(_SPOOL, default={}),
    agent=declared(AgentSettings, key_file=_KEY_FILE),
    enrol=declared(EnrolSettings),
    least_documents=Switch(),
    sources_files=Texts(),
    traces=declared(
        TraceSettings, _traces, endpoint=ADDRESS, sample_ratio=Number(0, 1), tls=UPSTREAM_TLS
    ),
    authzen=AUTHZEN,
    sources=sections(SOURCE),
    doors=sections(DOOR),
)
"""The declaration of the whole settings file: each key with its type."""


def read_settings(tree: Node, faults: DefinitionFaults, host: str) -> SidecarSettings:
    """Return the settings in `tree`, which is a mapping. `faults` collects the complaints about
    them, and has the folder that relative paths start from. `host` is the default `id`."""
    read = SETTINGS.members("", tree, faults)
    assert read is not None
    top, found = read
    found["id"] = found.get("id") or host
    if top.complained("listen"):
        found["listen"] = ListenAddress("127.0.0.1", 0)  # conflicts with no other port
    if found.get("redis") is not None:
        found["redis"] = found["redis"].with_files_in(faults.base)
    found["sources_files"] = tuple(faults.base / each for each in found.get("sources_files") or ())
    settings: SidecarSettings = SETTINGS.made(top, found)
    check_client_tls(top, "control_tls", "control", found)
    _check_enrolment(top)
    _check_ways(top, settings)
    _check_least_documents(top, settings)
    check_redis(top, settings.redis)
    refuse_conflicts(top, settings)
    check_doors(top, settings)
    return settings


def _check_enrolment(top: Section) -> None:
    if not top.has("enrol"):
        if not top.has("key_file"):
            top.complain("key_file", "is required")
        return
    for key in ("key_file", "agent"):
        # Both say which agent this sidecar serves and with which keys: one of them would be
        # ignored.
        if top.has(key):
            top.complain(key, "must be absent with `enrol`, which brings the keys and the agent")


def _check_ways(top: Section, settings: SidecarSettings) -> None:
    """Complain about a source that no listener or door leads to, and about a listener that leads to
    no source."""
    has_proxy = top.has("forward_proxy") or top.has("transparent")
    asked_about = {door.source for door in settings.doors}
    for item, source in zip(top.items("sources"), settings.sources, strict=False):
        listens = item.has("listen") or item.has("grpc_listen")
        if not (listens or has_proxy or source.alias in asked_about):
            item.complain("listen", "is required")
    led_to = has_proxy or any(each.listen or each.grpc_listen for each in settings.sources)
    if settings.sources and led_to and not (top.has("agent") or top.has("enrol")):
        top.complain("agent", "is required with `sources`: requests there are the agent's")
    for listener in ("forward_proxy", "transparent"):
        # Where files may bring sources, an agent that reads nothing is a choice: all is denied.
        none = not settings.sources and not settings.sources_files
        if getattr(settings, listener) is not None and none:
            top.complain(listener, "leads to no source; add one to `sources`")
    if settings.redirect_check_seconds and settings.transparent is None:
        top.complain("redirect_check_seconds", "needs `transparent`, whose port it checks")


def _check_least_documents(top: Section, settings: SidecarSettings) -> None:
    with_both = top.has("enrol") and settings.redis is not None
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
