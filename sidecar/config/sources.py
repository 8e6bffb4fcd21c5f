"""Reads the data sources, each a mapping in the list `sources`. Knows no other key."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from policies.definitions.definition import shown
from policies.definitions.forms import (
    IDENTIFIER,
    Choice,
    FilePath,
    MappingByName,
    Optional,
    Text,
    matching,
)
from policies.definitions.model import SENSITIVITIES
from policies.definitions.records import Key, Section, declared
from policies.ground.distribution import how_to_install
from sidecar.config.forms import (
    PAIR,
    TLS_OR_OFF,
    HttpVersions,
    Switch,
    check_client_tls,
    sections,
)
from sidecar.config.listeners import (
    ADDRESSES,
    EXACT_PATHS,
    GRPC,
    HOSTS,
    PATH,
    refuse_request_keys,
    upstream_fault,
)
from sidecar.config.postgres import FUNCTIONS, LOGIN, RELATIONS, RESULT, check_postgres
from sidecar.settings.model import (
    AWS_KINDS,
    GRPC_KINDS,
    Aws,
    Defaults,
    NamedSource,
    RestRule,
    Source,
    VendorMethod,
)

# An alias is part of every source id, and so of policies: no `/`, `:` or wildcard.
_ALIAS = matching(
    re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}\Z"),
    "must be 1 to 64 of a-z, 0-9, `_`, `.` and `-`, and start with a letter or digit",
    "is required",
)
_FIELD_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}(?:\.[A-Za-z_][A-Za-z0-9_-]{0,63}){0,7}\Z")
_FIELD = matching(_FIELD_PATH, "must be names separated by dots, as in `acl.level`")
_ARGUMENT = matching(
    _FIELD_PATH,
    "must be names separated by dots, as in `filter.collection`",
    "is empty; write the argument, such as `filter.collection`",
)
# No `.` segments and no percent-encoding: only one of two spellings of a path would match.
_ENDPOINT = matching(
    re.compile(r"\A(?:(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+/?|/)\Z"),
    "is not a plain path such as `/mcp`",
)
# No `.` or empty segments: the name is part of a source id, in which it has one spelling.
_VENDOR = matching(
    re.compile(r"\A[A-Za-z0-9_$-][A-Za-z0-9._$-]*(?:/[A-Za-z0-9_$-][A-Za-z0-9._$-]*)*\Z"),
    "is not the name of a method such as `com.example/search`",
    "is required",
)
# Methods are case-sensitive (RFC 9110): a rule for `get` would not match GET.
_METHOD = matching(
    re.compile(r"[A-Z]{1,32}\Z|\*\Z"),
    "must be a method in capitals, or `*` for all",
    "is required",
)
_PATH = matching(re.compile(r"/"), "must begin with `/`", "is required")


def _load_credentials(path: Path) -> None:
    if not path.is_file():
        raise ValueError(f"`{path}` is not a file")


def _source(section: Section, values: dict[str, Any]) -> Source:
    kind, level, upstream = values["kind"], values["sensitivity"], values["upstream"]
    if upstream and (fault := upstream_fault(upstream, kind)):
        section.complain("upstream", fault)
    values["upstream"] = upstream.rstrip("/")
    if "names" in values:
        values["names"] = {
            name: NamedSource(
                (each and each.source_id) or name, (each and each.sensitivity) or level
            )
            for name, each in values["names"].items()
        }
    of_grpc = (values.get("grpc") or "").startswith("https://")
    check_client_tls(section, "tls", "grpc" if of_grpc else "upstream", values)
    source = Source(**values)
    _check_kind(section, source)
    _check_grpc(section, source)
    return source


def _check_grpc(section: Section, source: Source) -> None:
    """Complain about the keys for gRPC at a source that doesn't answer it."""
    if source.kind not in GRPC_KINDS and not section.complained("kind"):
        for key in ("grpc", "grpc_listen"):
            if section.has(key):
                kinds = ", ".join(GRPC_KINDS)
                section.complain(key, f"applies only to sources of the kinds {kinds}")
    elif source.grpc_listen is None:
        return
    elif source.grpc_url is None and not section.has("grpc"):
        section.complain("grpc_listen", "needs `grpc`, the address of the source's gRPC port")
    # For port 0, the system picks a free one.
    elif source.grpc_listen == source.listen and source.listen.port:
        section.complain("grpc_listen", "is the address of `listen`, which serves both; remove it")


def _check_kind(section: Section, source: Source) -> None:
    """Complain about keys that don't apply to this kind of source."""
    if section.complained("kind"):
        return  # no known kind to compare them with
    check_postgres(section, source)
    if source.kind == "tcp":
        refuse_request_keys(section, source)
    elif source.kind == "postgres":
        return
    elif source.kind != "rest":
        if source.routes:
            section.complain("routes", "apply only to sources of the kind `rest`")
        # Other kinds find names in the path by rules of their own.
        if source.opaque:
            section.complain("paths", "`opaque` applies only to sources of the kind `rest`")
        # They judge, filter or sign whole bodies, and no server of theirs needs trailers.
        if source.forwards_trailers:
            section.complain("trailers", "`forward` applies only to sources of the kind `rest`")
    if source.kind != "mcp":
        for key in ("methods", "sse"):
            if getattr(source, key) not in ((), "off"):
                section.complain(key, "applies only to sources of the kind `mcp`")
        for key, verb in (("endpoint", "applies"), ("arguments", "apply")):
            if section.has(key):
                section.complain(key, f"{verb} only to sources of the kind `mcp`")
    fine = not section.complained("exact_paths")
    if source.exact_paths and source.kind not in ("rest", "tcp") and fine:
        section.complain("exact_paths", "applies only to sources of the kind `rest`")
    # Requests are looked up by ids of this form, so another name would never match.
    prefix = f"{source.kind}://{source.alias}/"
    for name in source.names:
        if not name.startswith(prefix):
            section.complain("names", f"{shown(name)} must begin with `{prefix}`")
    if section.has("aws") and source.kind not in AWS_KINDS:
        section.complain("aws", f"applies only to sources of the kinds {', '.join(AWS_KINDS)}")
    # botocore is an extra of the package (pyproject.toml), because few sidecars need it.
    if source.kind in AWS_KINDS and find_spec("botocore") is None:
        section.complain("kind", f"`{source.kind}` needs botocore; {how_to_install('aws')}")


# botocore finds the values that it leaves out.
_AWS = declared(Aws, credentials_file=FilePath("folder", _load_credentials))
_NAMED = declared(NamedSource, source_id=Key(IDENTIFIER), sensitivity=Key(Choice(SENSITIVITIES)))
SOURCE = declared(
    Source,
    _source,
    alias=_ALIAS,
    upstream=Text(lambda _: None, {"pattern": "://"}, "is required"),
    grpc=GRPC,
    names=MappingByName(Optional(_NAMED)),
    routes=sections(declared(RestRule, method=_METHOD, path=_PATH)),
    defaults=declared(Defaults),
    endpoint=_ENDPOINT,
    arguments=MappingByName(_ARGUMENT),
    methods=sections(declared(VendorMethod, name=_VENDOR)),
    sse=Switch(),
    sensitivity_field=_FIELD,
    hosts=HOSTS,
    path=PATH,
    exact_paths=EXACT_PATHS,
    aws=_AWS,
    addresses=ADDRESSES,
    http=HttpVersions(),
    login=LOGIN,
    relations=RELATIONS,
    functions=FUNCTIONS,
    result=RESULT,
    tls=TLS_OR_OFF,
    listen_tls=PAIR,
    terminate=PAIR,
)
