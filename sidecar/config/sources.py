"""Reads the data sources, each a mapping in the list `sources`. Knows no other key."""

import re
from importlib.util import find_spec
from pathlib import Path

from policies.definitions.definition import shown
from policies.definitions.model import SENSITIVITIES, Sensitivity
from policies.ground.distribution import how_to_install
from sidecar.config.listeners import (
    addresses_of,
    exact_paths_of,
    hosts_of,
    listen_of,
    path_of,
    refuse_request_keys,
    upstream_of,
)
from sidecar.config.sections import Section, Spelling
from sidecar.config.tls import client_tls, pair_of
from sidecar.settings.model import (
    AWS_KINDS,
    HALF_CLOSES,
    KINDS,
    PATH_READINGS,
    PERMISSIONS,
    ROUTE_CLASSES,
    SOURCE_MODES,
    TRAILER_HANDLINGS,
    VENDOR_CLASSES,
    Aws,
    Defaults,
    NamedSource,
    RestRule,
    Source,
    VendorMethod,
)

# An alias is part of every source id, and so of policies: no `/`, `:` or wildcard.
_ALIAS = Spelling(
    re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}\Z"),
    "must be 1 to 64 of a-z, 0-9, `_`, `.` and `-`, and start with a letter or digit",
)
_FIELD_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}(?:\.[A-Za-z_][A-Za-z0-9_-]{0,63}){0,7}\Z")
_FIELD = Spelling(_FIELD_PATH, "must be names separated by dots, as in `acl.level`")
_ARGUMENT = Spelling(_FIELD_PATH, "must be names separated by dots, as in `filter.collection`")
# No `.` segments and no percent-encoding: only one of two spellings of a path would match.
_ENDPOINT = Spelling(
    re.compile(r"\A(?:(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+/?|/)\Z"),
    "is not a plain path such as `/mcp`",
)
# No `.` or empty segments: the name is part of a source id, in which it has one spelling.
_VENDOR = Spelling(
    re.compile(r"\A[A-Za-z0-9_$-][A-Za-z0-9._$-]*(?:/[A-Za-z0-9_$-][A-Za-z0-9._$-]*)*\Z"),
    "is not the name of a method such as `com.example/search`",
)
# Methods are case-sensitive (RFC 9110): a rule for `get` would not match GET.
_METHOD = Spelling(
    re.compile(r"[A-Z]{1,32}\Z|\*\Z"), "must be a method in capitals, or `*` for all"
)
_PATH = Spelling(re.compile(r"/"), "must begin with `/`")


def read_source(
    section: Section, base: Path, *, has_proxy: bool, asked_about: frozenset[str]
) -> Source:
    """Read one source. Paths in it are relative to `base`. It needs no `listen` of its own if a
    proxy listener leads to it (`has_proxy`), or if its alias is among those that doors are
    `asked_about`."""
    alias = section.required("alias", _ALIAS)
    kind = section.choice("kind", KINDS)
    sensitivity = section.choice("sensitivity", SENSITIVITIES)
    source = Source(
        alias=alias,
        kind=kind,
        upstream=upstream_of(section, kind),
        listen=listen_of(section, required=not has_proxy and alias not in asked_about),
        sensitivity=sensitivity,
        writes=section.choice("writes", PERMISSIONS, "deny"),
        mode=section.choice("mode", SOURCE_MODES, "enforce"),
        names={
            name: _named(each, name, sensitivity) for name, each in section.named_sections("names")
        },
        routes=tuple(_route(each) for each in section.sections("routes")),
        paths=section.choice("paths", PATH_READINGS, "strict"),
        trailers=section.choice("trailers", TRAILER_HANDLINGS, "drop"),
        defaults=_defaults(section.section("defaults")),
        endpoint=_endpoint(section, kind),
        arguments=_arguments(section, kind),
        methods=tuple(_vendor(each) for each in section.sections("methods")),
        sse=section.switch("sse", "off"),
        sensitivity_field=section.text("sensitivity_field", spelling=_FIELD),
        hosts=hosts_of(section),
        path=path_of(section),
        exact_paths=exact_paths_of(section),
        aws=_aws(section, kind, base),
        addresses=addresses_of(section),
        tls=client_tls(section, "tls", "upstream", base),
        listen_tls=pair_of(section, "listen_tls", base),
        half_close=section.choice("half_close", HALF_CLOSES, "cancel"),
        terminate=pair_of(section, "terminate", base),
    )
    _check_kind(section, source)
    section.close()
    return source


def _check_kind(section: Section, source: Source) -> None:
    """Complain of keys that don't suit the kind of the source."""
    if section.complained("kind"):
        return  # no known kind to compare them with
    if source.kind == "tcp":
        refuse_request_keys(section, source)
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
    fine = not section.complained("exact_paths")
    if source.exact_paths and source.kind not in ("rest", "tcp") and fine:
        section.complain("exact_paths", "applies only to sources of the kind `rest`")
    # Requests are looked up by ids of this form, so another name would never match.
    prefix = f"{source.kind}://{source.alias}/"
    for name in source.names:
        if not name.startswith(prefix):
            section.complain("names", f"{shown(name)} must begin with `{prefix}`")


def _endpoint(section: Section, kind: str) -> str:
    path = section.text("endpoint", spelling=_ENDPOINT)
    if path is not None and kind != "mcp":
        section.complain("endpoint", "applies only to sources of the kind `mcp`")
    return path or "/mcp"


def _aws(section: Section, kind: str, base: Path) -> Aws:
    """Read the settings in `aws`. botocore finds the values that they leave out."""
    aws = section.section("aws")
    # `path` makes `base` of a missing value, so find out first whether there is one.
    named = aws.text("credentials_file") is not None
    found = Aws(
        region=aws.identifier("region"),
        profile=aws.identifier("profile"),
        credentials_file=aws.path("credentials_file", base, "") if named else None,
    )
    if found.credentials_file is not None and not found.credentials_file.is_file():
        aws.complain("credentials_file", f"`{found.credentials_file}` is not a file")
    if aws.given and kind not in AWS_KINDS:
        section.complain("aws", f"applies only to sources of the kinds {', '.join(AWS_KINDS)}")
    # botocore is an extra of the package (pyproject.toml), because few sidecars need it.
    if kind in AWS_KINDS and find_spec("botocore") is None:
        section.complain("kind", f"`{kind}` needs botocore; {how_to_install('aws')}")
    aws.close()
    return found


def _arguments(section: Section, kind: str) -> dict[str, str]:
    named = section.section("arguments")
    if named.given and kind != "mcp":
        section.complain("arguments", "apply only to sources of the kind `mcp`")
    absent = "is empty; write the argument, such as `filter.collection`"
    return {tool: named.required(tool, _ARGUMENT, absent) for tool in named.own_keys()}


def _vendor(section: Section) -> VendorMethod:
    method = VendorMethod(
        section.required("name", _VENDOR), section.choice("class", VENDOR_CLASSES, "retrieve")
    )
    section.close()
    return method


def _named(section: Section, name: str, level: Sensitivity) -> NamedSource:
    named = NamedSource(
        source_id=section.identifier("source_id") or name,
        sensitivity=section.choice("sensitivity", SENSITIVITIES, level),
    )
    section.close()
    return named


def _route(section: Section) -> RestRule:
    route = RestRule(
        method=section.required("method", _METHOD),
        path=section.required("path", _PATH),
        class_=section.choice("class", ROUTE_CLASSES),
        source_id=section.identifier("source_id"),
        sensitivity=section.optional_choice("sensitivity", SENSITIVITIES),
    )
    section.close()
    return route


def _defaults(section: Section) -> Defaults:
    found = Defaults(
        section.identifier("user"), section.identifier("session"), section.identifier("task")
    )
    section.close()
    return found
