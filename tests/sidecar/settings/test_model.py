"""The settings file, and its complaints: all of them, at once."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from policies.ground.keys import make_key
from policies.ground.listen_address import ListenAddress
from policies.ground.settings import SettingsError
from sidecar.config.file import read
from sidecar.settings import model as declared
from sidecar.settings.model import (
    Defaults,
    NamedSource,
    RestRule,
    SidecarSettings,
    Source,
    UpstreamTls,
)
from sidecar.settings.spool import SpoolSettings

KEY = make_key(b"k" * 32)
LEAST = """\
control: http://127.0.0.1:8700
key_file: sidecar.key
"""
WHOLE = """\
id: sc-7
control: https://control.example:8443/
key_file: sidecar.key
listen: 127.0.0.1:9710
metrics_listen: "[::1]:9711"
cache: copy
staleness_seconds: 12.5
drain_seconds: 0
spool: {dir: records, mode: strict, max_bytes: 268435456, timeout_ms: 100}
agent: {id: agt_loans, role: loan_underwriter, key_file: keys/agent.key}
sources:
  - alias: kb
    kind: chroma
    upstream: http://127.0.0.1:8000
    listen: 127.0.0.1:18000
    sensitivity: medium
    names:
      chroma://kb/default_tenant/default_database/contracts:
        {source_id: contracts, sensitivity: high}
      chroma://kb/default_tenant/default_database/rates: {source_id: rates}
    defaults: {user: service, task: underwriting}
  - alias: crm
    kind: rest
    upstream: http://127.0.0.1:8001/api/
    listen: 127.0.0.1:18001
    sensitivity: high
    writes: allow
    mode: report
    routes:
      - {method: GET, path: "/customers/{id}/**", class: retrieve,
         source_id: "customers-{id}", sensitivity: critical}
      - {method: "*", path: /health, class: metadata}
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "keys").mkdir()
    for name in ("sidecar.key", "keys/agent.key", "agent.key"):
        (tmp_path / name).write_text(KEY + "\n")
    return tmp_path


def load(base: Path, text: str, **environ: str) -> SidecarSettings:
    path = base / "sidecar.yaml"
    path.write_text(text)
    variables = {f"SLUICE_SIDECAR_{name}": value for name, value in environ.items()}
    return read(path, {"HOME": "/", "SLUICE_LOG_LEVEL": "info", **variables}, "host-1")


def complaints(base: Path, text: str, **environ: str) -> list[str]:
    """The complaints about it, without the directory."""
    with pytest.raises(SettingsError) as caught:
        load(base, text, **environ)
    return [each.replace(f"{base}/", "") for each in caught.value.complaints]


def test_two_keys_are_enough(base: Path) -> None:
    assert load(base, LEAST) == SidecarSettings(
        id="host-1",
        control="http://127.0.0.1:8700",
        control_tls=UpstreamTls(),
        redis=None,
        compress="auto",
        key_file=base / "sidecar.key",
        listen=ListenAddress("127.0.0.1", 8710),
        metrics_listen=None,
        forward_proxy=None,
        transparent=None,
        encrypted_hello="deny",
        cache=base / "cache",
        staleness_seconds=30.0,
        drain_seconds=10.0,
        spool=SpoolSettings(base / "spool"),
        agent=None,
        sources=(),
    )


def test_every_key_is_read_and_paths_are_relative_to_the_file(base: Path) -> None:
    told = load(base, WHOLE)
    assert (told.id, told.control) == ("sc-7", "https://control.example:8443")
    assert (told.listen, told.metrics_listen) == (
        ListenAddress("127.0.0.1", 9710),
        ListenAddress("::1", 9711),
    )
    assert (told.cache, told.staleness_seconds, told.drain_seconds) == (base / "copy", 12.5, 0.0)
    assert told.spool == SpoolSettings(
        base / "records", mode="strict", max_bytes=268435456, timeout_ms=100
    )
    assert told.agent is not None
    assert (told.agent.id, told.agent.role) == ("agt_loans", "loan_underwriter")
    assert told.agent.key_file == base / "keys" / "agent.key"
    contracts = "chroma://kb/default_tenant/default_database/contracts"
    rates = "chroma://kb/default_tenant/default_database/rates"
    assert told.sources == (
        Source(
            alias="kb",
            kind="chroma",
            upstream="http://127.0.0.1:8000",
            listen=ListenAddress("127.0.0.1", 18000),
            sensitivity="medium",
            names={
                contracts: NamedSource("contracts", "high"),
                rates: NamedSource("rates", "medium"),
            },
            defaults=Defaults("service", None, "underwriting"),
        ),
        Source(
            alias="crm",
            kind="rest",
            upstream="http://127.0.0.1:8001/api",
            listen=ListenAddress("127.0.0.1", 18001),
            sensitivity="high",
            writes="allow",
            mode="report",
            routes=(
                RestRule("GET", "/customers/{id}/**", "retrieve", "customers-{id}", "critical"),
                RestRule("*", "/health", "metadata"),
            ),
        ),
    )


def test_the_environment_overrides_a_key(base: Path) -> None:
    told = load(
        base,
        WHOLE,
        ID="from-env",
        STALENESS_SECONDS="7",
        SPOOL__MODE="best_effort",
        SPOOL__MAX_BYTES="134217728",
        AGENT__ROLE="teller",
        SOURCES__1__UPSTREAM="http://127.0.0.1:9",
        SOURCES__0__DEFAULTS__SESSION="s-1",
        LISTEN="127.0.0.1:1",
        DRAIN_SECONDS="",
    )
    assert (told.id, told.staleness_seconds, told.drain_seconds) == ("from-env", 7.0, 0.0)
    assert (told.spool.mode, told.spool.max_bytes) == ("best_effort", 134217728)
    assert told.spool.timeout_ms == 100
    assert told.agent is not None
    assert told.agent.role == "teller"
    assert told.sources[1].upstream == "http://127.0.0.1:9"
    assert told.sources[0].defaults == Defaults("service", "s-1", "underwriting")
    assert told.listen == ListenAddress("127.0.0.1", 1)


def test_the_environment_can_add_keys_to_the_file(base: Path) -> None:
    told = load(
        base,
        LEAST,
        AGENT__ROLE="teller",
        AGENT__KEY_FILE="agent.key",
        SPOOL__DIR="elsewhere",
        METRICS_LISTEN="127.0.0.1:2",
    )
    assert told.agent is not None
    assert (told.agent.id, told.agent.role) == (None, "teller")
    assert told.spool.dir == base / "elsewhere"


@pytest.mark.parametrize(
    ("text", "environ", "said"),
    [
        ("", {}, ["sidecar.yaml: is empty"]),
        ("- a", {}, ["sidecar.yaml:1: must be a mapping"]),
        ("a: b: c", {}, ["sidecar.yaml:1: is not YAML: mapping values are not allowed in"]),
        ("a: 1\na: 2", {}, ["sidecar.yaml:2: a: duplicate key; the first is on line 1"]),
        ("control: &x 1\nid: *x", {}, ["uses the alias"]),
        ("control: !secret x", {}, ["uses the tag"]),
        ("key_file: sidecar.key", {}, ["control: is required"]),
        ("control:\nkey_file: sidecar.key", {}, ["sidecar.yaml:1: control: is required"]),
        ('control: ""\nkey_file: sidecar.key', {}, ["sidecar.yaml:1: control: is required"]),
        ("control: http://a:1", {}, ["key_file: is required"]),
        (LEAST + "stalenes_seconds: 3", {}, ["did you mean `staleness_seconds`?"]),
        (LEAST + "xyzzy: 3", {}, ["xyzzy: there is no such key; `--help` lists the keys"]),
        (LEAST + "spool: {mod: strict}", {}, ["3: spool.mod: there is no such key; did you mean"]),
        (LEAST + "staleness_seconds: soon", {}, ["3: staleness_seconds: `soon` is not a plain n"]),
        (LEAST + "staleness_seconds: 0.5", {}, ["`0.5` is not between 1 and 86400 seconds"]),
        (LEAST + "staleness_seconds: 1_0", {}, ["`1_0` is not a plain number such as 30"]),
        (LEAST + "staleness_seconds: -3", {}, ["`-3` is not a plain number"]),
        (LEAST + "staleness_seconds: {a: 1}", {}, ["a map is not a plain number"]),
        (LEAST + "listen: 8710", {}, ["listen: must be a string; put `8710` in quotes"]),
        (LEAST + "listen: localhost", {}, ["listen: `localhost` is not host:port"]),
        (LEAST + "id: 7", {}, ["id: must be a string"]),
        (LEAST + f'id: "{"x" * 257}"', {}, ["id: must have 1 to 256 characters"]),
        (LEAST + "spool: strict", {}, ["spool: must be a mapping"]),
        (LEAST + "spool: {mode: fast}", {}, ["`fast` is not one of durable, strict"]),
        (LEAST + "spool: {max_bytes: 1000}", {}, ["spool.max_bytes: `max_bytes` is `1000`; it mu"]),
        (LEAST + "sources: {}", {}, ["sources: must be a list"]),
        (LEAST + "sources: [kb]", {}, ["sources[0]: must be a mapping"]),
        (LEAST + "agent: {id: a}", {}, ["agent.role: is required", "agent.key_file: is required"]),
        (LEAST.replace("http:", "ftp:"), {}, ["control: `ftp://127.0.0.1:8700` is not http://"]),
        (LEAST.replace("//127", "//u:p@127"), {}, ["control: must be only scheme, host, port"]),
        (LEAST.replace(":8700", ":0"), {}, ["is not http://host:port"]),
        (LEAST.replace(":8700", ":87000"), {}, ["control: is not an address"]),
        (LEAST.replace("sidecar.key", "no.key"), {}, ["key_file: `no.key` can't be read: No such"]),
        (LEAST, {"STALENESS_SECOND": "3"}, ["there is no such key; did you mean"]),
        (LEAST, {"SPOOL__MODE": "fast"}, ["SLUICE_SIDECAR_SPOOL__MODE: `fast` is not one of"]),
        (LEAST, {"STALENESS_SECONDS": "x"}, ["SLUICE_SIDECAR_STALENESS_SECONDS: `x` is not a"]),
        (LEAST, {"CONTROL__PORT": "1"}, ["SLUICE_SIDECAR_CONTROL__PORT: the file has no such key"]),
        (LEAST, {"SOURCES": "x"}, ["SLUICE_SIDECAR_SOURCES: must be a list"]),
    ],
)
def test_a_fault_is_reported_with_its_line(
    base: Path, text: str, environ: dict[str, str], said: list[str]
) -> None:
    told = complaints(base, text, **environ)
    assert len(told) == len(said)
    for each, expected in zip(told, said, strict=True):
        assert expected in each


SOURCE = """\
agent: {role: r, key_file: agent.key}
sources:
  - alias: kb
    kind: chroma
    upstream: http://127.0.0.1:8000
    listen: 127.0.0.1:18000
    sensitivity: medium
"""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("alias: kb", "alias: K B"), "sources[0].alias: `K B` must be 1 to 64 of a-z"),
        (("    kind: chroma\n", ""), "sources[0].kind: is required"),
        (("kind: chroma", "kind: mongo"), f"`mongo` is not one of {', '.join(declared.KINDS)}"),
        (("    sensitivity: medium\n", ""), "sources[0].sensitivity: is required"),
        (("sensitivity: medium", "sensitivity:"), "sources[0].sensitivity: is required"),
        (("kind: chroma", 'kind: ""'), "sources[0].kind: is required"),
        (("medium", 'medium\n    writes: ""'), "`` is not one of deny, allow"),
        (("medium", "secret"), "sources[0].sensitivity: `secret` is not one of low, medium"),
        (("    listen: 127.0.0.1:18000\n", ""), "sources[0].listen: is required"),
        (("    upstream: http://127.0.0.1:8000\n", ""), "sources[0].upstream: is required"),
        (("medium", "medium\n    writes: maybe"), "`maybe` is not one of deny, allow"),
        (("medium", "medium\n    mode: audit"), "`audit` is not one of enforce, report"),
        (("medium", "medium\n    header: x"), "sources[0].header: there is no such key"),
        (("medium", "medium\n    names: [a]"), "sources[0].names: must be a mapping"),
        (
            ("medium", "medium\n    names: {contracts: {source_id: c}}"),
            "sources[0].names: `contracts` must begin with `chroma://kb/`",
        ),
        (
            ("medium", "medium\n    names: {chroma://kb/a: {sensitivity: x}}"),
            "sources[0].names.chroma://kb/a.sensitivity: `x` is not one of",
        ),
        (
            ("medium", "medium\n    routes: [{method: GET, path: /, class: deny}]"),
            "sources[0].routes: apply only to sources of the kind `rest`",
        ),
        (
            ("medium", "medium\n    endpoint: /x"),
            "sources[0].endpoint: applies only to sources of the kind `mcp`",
        ),
        (
            ("medium", "medium\n    arguments: {search: a}"),
            "sources[0].arguments: apply only to sources of the kind `mcp`",
        ),
        (
            ("medium", "medium\n    aws: {region: eu-central-1}"),
            "sources[0].aws: applies only to sources of the kinds",
        ),
        (("127.0.0.1:18000", "127.0.0.1:8710"), "sources[0].listen: `127.0.0.1:8710` is already"),
    ],
)
def test_a_fault_of_a_source_is_reported_with_its_line(
    base: Path, changed: tuple[str, str], said: str
) -> None:
    told = complaints(base, LEAST + SOURCE.replace(*changed))
    assert len(told) == 1, told
    assert said in told[0]
    assert told[0].startswith("sidecar.yaml:")


@pytest.mark.parametrize(
    ("aws", "said"),
    [
        ("{credentials_file: none}", "aws.credentials_file: "),
        ("{region: 7}", "aws.region: must be a string"),
        ("{secret: x}", "aws.secret: there is no such key"),
        ("eu-central-1", "aws: must be a mapping"),
    ],
)
def test_a_fault_of_credentials_is_reported_with_its_line(base: Path, aws: str, said: str) -> None:
    told = complaints(base, LEAST + SOURCE.replace("chroma", "s3") + f"    aws: {aws}\n")
    assert len(told) == 1, told
    assert said in told[0]


def test_credentials_are_read_relative_to_the_file(base: Path) -> None:
    (base / "aws").write_text("[default]\n")
    aws = "    aws: {region: eu-central-1, profile: lake, credentials_file: aws}\n"
    (base / "sidecar.yaml").write_text(LEAST + SOURCE.replace("chroma", "s3") + aws)
    [found] = read(base / "sidecar.yaml", {}, "host").sources
    assert found.aws == declared.Aws("eu-central-1", "lake", base / "aws")


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ("{path: /, class: deny}", "routes[0].method: is required"),
        ("{method: get, path: /, class: deny}", "routes[0].method: `get` must be a method in cap"),
        ("{method: GET, path: a, class: deny}", "routes[0].path: `a` must begin with `/`"),
        ("{method: GET, path: /}", "routes[0].class: is required"),
        ("{method: GET, path: /, class: pass}", "routes[0].class: `pass` is not one of"),
        ("{method: GET, path: /, class: deny, sensitivity: x}", "routes[0].sensitivity: `x` is"),
        ("{method: GET, path: /, class: deny, sourceid: x}", "did you mean `source_id`?"),
    ],
)
def test_a_fault_of_a_route_is_reported_with_its_line(base: Path, route: str, said: str) -> None:
    rest = SOURCE.replace("chroma", "rest") + f"    routes: [{route}]\n"
    told = complaints(base, LEAST + rest)
    assert len(told) == 1, told
    assert said in told[0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("endpoint: mcp", "endpoint: `mcp` is not a plain path"),
        ("endpoint: /a/../b", "endpoint: `/a/../b` is not a plain path"),
        ('endpoint: ""', "endpoint: `` is not a plain path"),
        ("arguments: [search]", "arguments: must be a mapping"),
        ("arguments: {search: a..b}", "arguments.search: `a..b` must be names separated by dots"),
        ("arguments: {search: }", "arguments.search: is empty; write the argument"),
        ("arguments: {search: {a: b}}", "arguments.search: must be a string"),
    ],
)
def test_a_fault_of_an_mcp_source_is_reported(base: Path, line: str, said: str) -> None:
    told = complaints(base, LEAST + SOURCE.replace("chroma", "mcp") + f"    {line}\n")
    assert said in told[0]


def test_an_mcp_source_has_an_endpoint_and_arguments(base: Path) -> None:
    given = "    endpoint: /api/mcp\n    arguments: {search.docs: filter.collection}\n"
    whole = SOURCE.replace("chroma", "mcp")
    [source] = load(base, LEAST + whole).sources
    assert (source.endpoint, source.arguments) == ("/mcp", {})
    [source] = load(base, LEAST + whole + given).sources
    assert source.endpoint == "/api/mcp"
    assert source.arguments == {"search.docs": "filter.collection"}


def test_all_complaints_come_at_once(base: Path) -> None:
    text = "control: x\nlisten: y\nspol: {}\nspool: {mode: z}\nstaleness_seconds: w\n"
    told = complaints(base, text, DRAIN_SECONDS="v")
    assert len(told) == 7
    keys = ("control", "listen", "spol", "spool.mode", "staleness_seconds", "key_file", "DRAIN")
    for key in keys:
        assert any(key in each for each in told), key


def test_two_sources_share_neither_port_nor_name(base: Path) -> None:
    _, _, item = SOURCE.partition("sources:\n")
    told = complaints(base, LEAST + SOURCE + item)
    assert len(told) == 2
    assert (
        "sources[1].listen: `127.0.0.1:18000` is already the address of `sources[0].listen`"
        in (told[0])
    )
    assert "sources[1].alias: `kb` is already the alias of sources[0]" in told[1]


def test_a_source_without_an_agent_is_a_complaint(base: Path) -> None:
    text = LEAST + SOURCE.replace("agent: {role: r, key_file: agent.key}\n", "")
    [told] = complaints(base, text)
    assert "agent: is required" in told


@pytest.mark.parametrize("held", ["", "secret-thing", KEY[:-1] + "x", "slc_ü", KEY + KEY])
def test_a_key_file_without_a_key_is_a_complaint_that_does_not_show_it(
    base: Path, held: str
) -> None:
    (base / "sidecar.key").write_text(held)
    [told] = complaints(base, LEAST)
    assert "does not hold an API key" in told
    assert not held or held not in told


def test_the_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        read(tmp_path / "none.yaml", {}, "host")
    with pytest.raises(SettingsError):
        read(tmp_path, {}, "host")


def test_a_file_with_hundreds_of_faults_does_not_crash(base: Path) -> None:
    text = "".join("a: 1\n" for _ in range(500))
    assert len(complaints(base, text)) > 50


def test_every_setting_has_its_sentence() -> None:
    source = Path(declared.__file__).read_text()
    classes = [
        each for each in vars(declared).values() if isinstance(each, type) and is_dataclass(each)
    ]
    ours = [each for each in classes if each.__module__ == declared.__name__]
    assert len(ours) >= 6
    for each in ours:
        for field in fields(each):
            pattern = rf'    {field.name}: [^\n]+\n    """[A-Z`][^"]+\.'
            assert re.search(pattern, source), f"{each.__name__}.{field.name}"


def test_the_kinds_are_those_of_the_protocols() -> None:
    from sidecar.protocols.registry import MODULES, load_protocol

    assert sorted(MODULES) == sorted(declared.KINDS)
    for kind in declared.KINDS:
        whole: dict[str, Any] = {"alias": "a", "kind": kind, "upstream": "http://a"}
        source = Source(**whole, listen=ListenAddress("127.0.0.1", 0), sensitivity="low")
        assert load_protocol(source, lambda: 0.0).match is not None


@pytest.mark.parametrize(
    ("control", "told", "compresses"),
    [
        ("http://127.0.0.1:8700", "auto", False),
        ("http://localhost:8700", "auto", False),
        ("https://sluice.example", "auto", True),
        ("https://sluice.example", "never", False),
        ("http://127.0.0.1:8700", "always", True),
    ],
)
def test_records_are_compressed_when_they_leave_the_host(
    base: Path, control: str, told: str, compresses: bool
) -> None:
    text = LEAST.replace("http://127.0.0.1:8700", control) + f"compress: {told}\n"
    assert load(base, text).compresses is compresses
