"""The settings file, and its complaints: all of them, at once."""

from pathlib import Path

import pytest

from policies.ground.addresses import ListenAddress
from policies.ground.settings import SettingsError
from sidecar.config.file import read
from sidecar.settings.model import (
    Defaults,
    NamedSource,
    RestRule,
    SidecarSettings,
    Source,
    UpstreamTls,
)
from sidecar.settings.sections import SpoolSettings
from tests.sidecar.config.settings_file import KEY, LEAST, complaints, load
from tests.support.certificates import authority
from tests.support.documents import blocks

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


def test_the_readme_s_example_is_valid(base: Path) -> None:
    (text,) = (
        each.text for each in blocks("sidecar/README.md") if each.text.startswith("# sidecar.yaml")
    )
    [source] = load(base, text).sources
    assert source.listen is not None
    assert (source.alias, source.kind, source.listen.port) == ("kb", "chroma", 18000)
    # The file of the page on operating, with its own authority beside it.
    (text,) = (
        each.text
        for each in blocks("deploy/README.md")
        if each.title == "sidecar.yaml, in production"
    )
    (base / "ca.pem").write_bytes(authority("guide").path.read_bytes())
    found = load(base, text.replace("…", "secret"))
    assert found.redis is not None
    assert found.redis.options == (("ssl_ca_certs", str(base / "ca.pem")),)
    assert found.control_tls == UpstreamTls(base / "ca.pem")


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
    found = load(base, WHOLE)
    assert (found.id, found.control) == ("sc-7", "https://control.example:8443")
    assert (found.listen, found.metrics_listen) == (
        ListenAddress("127.0.0.1", 9710),
        ListenAddress("::1", 9711),
    )
    assert (found.cache, found.staleness_seconds, found.drain_seconds) == (base / "copy", 12.5, 0.0)
    assert found.spool == SpoolSettings(
        base / "records", mode="strict", max_bytes=268435456, timeout_ms=100
    )
    assert found.agent is not None
    assert (found.agent.id, found.agent.role) == ("agt_loans", "loan_underwriter")
    assert found.agent.key_file == base / "keys" / "agent.key"
    contracts = "chroma://kb/default_tenant/default_database/contracts"
    rates = "chroma://kb/default_tenant/default_database/rates"
    assert found.sources == (
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
    found = load(
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
    assert (found.id, found.staleness_seconds, found.drain_seconds) == ("from-env", 7.0, 0.0)
    assert (found.spool.mode, found.spool.max_bytes) == ("best_effort", 134217728)
    assert found.spool.timeout_ms == 100
    assert found.agent is not None
    assert found.agent.role == "teller"
    assert found.sources[1].upstream == "http://127.0.0.1:9"
    assert found.sources[0].defaults == Defaults("service", "s-1", "underwriting")
    assert found.listen == ListenAddress("127.0.0.1", 1)


def test_the_environment_can_add_keys_to_the_file(base: Path) -> None:
    found = load(
        base,
        LEAST,
        AGENT__ROLE="teller",
        AGENT__KEY_FILE="agent.key",
        SPOOL__DIR="elsewhere",
        METRICS_LISTEN="127.0.0.1:2",
    )
    assert found.agent is not None
    assert (found.agent.id, found.agent.role) == (None, "teller")
    assert found.spool.dir == base / "elsewhere"


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
        ("key_file: sidecar.key\ncontrol_tls: {}", {}, ["control: is required"]),
        ("control:\nkey_file: sidecar.key", {}, ["sidecar.yaml:1: control: is required"]),
        ('control: ""\nkey_file: sidecar.key', {}, ["sidecar.yaml:1: control: is required"]),
        ("control: http://a:1", {}, ["key_file: is required"]),
        (LEAST + "stalenes_seconds: 3", {}, ["did you mean `staleness_seconds`?"]),
        (LEAST + "xyzzy: 3", {}, ["xyzzy: unknown key; `--help` lists them"]),
        (LEAST + "spool: {mod: strict}", {}, ["3: spool.mod: unknown key; did you mean"]),
        (LEAST + "staleness_seconds: soon", {}, ["3: staleness_seconds: `soon` is not a plain n"]),
        (LEAST + "staleness_seconds: 0.5", {}, ["`0.5` is not between 1 and 86400 seconds"]),
        (LEAST + "staleness_seconds: 1_0", {}, ["`1_0` is not a plain number such as 30"]),
        (LEAST + "staleness_seconds: -3", {}, ["`-3` is not a plain number"]),
        (LEAST + "staleness_seconds: {a: 1}", {}, ["a map is not a plain number"]),
        (LEAST + "listen: 8710", {}, ["listen: must be a string; YAML reads `8710` as"]),
        (LEAST + "listen: localhost", {}, ["listen: `localhost` is not host:port"]),
        (LEAST + "id: 7", {}, ["id: must be a string"]),
        (LEAST + f'id: "{"x" * 257}"', {}, ["id: must have 1 to 256 characters"]),
        (LEAST + "spool: strict", {}, ["spool: must be a mapping"]),
        (LEAST + "spool: {mode: fast}", {}, ["`best_effort`, not `fast`"]),
        (LEAST + "spool: {max_bytes: 1000}", {}, ["spool.max_bytes: `max_bytes` is `1000`; it mu"]),
        (LEAST + "sources: {}", {}, ["sources: must be a list"]),
        (LEAST + "sources: [kb]", {}, ["sources[0]: must be a mapping"]),
        (LEAST + "agent: {id: a}", {}, ["agent.role: is required", "agent.key_file: is required"]),
        (LEAST.replace("http:", "ftp:"), {}, ["control: `ftp://127.0.0.1:8700` is not http://"]),
        (LEAST.replace("//127", "//u:p@127"), {}, ["control: must be only scheme, host, port"]),
        (LEAST.replace(":8700", ":0"), {}, ["is not http://host:port"]),
        (LEAST.replace(":8700", ":87000"), {}, ["control: is not an address"]),
        (LEAST.replace("sidecar.key", "no.key"), {}, ["key_file: `no.key` can't be read: ENOENT"]),
        (LEAST, {"STALENESS_SECOND": "3"}, ["unknown key; did you mean"]),
        (LEAST, {"SPOOL__MODE": "fast"}, ["SLUICE_SIDECAR_SPOOL__MODE: must be one of"]),
        (LEAST, {"STALENESS_SECONDS": "x"}, ["SLUICE_SIDECAR_STALENESS_SECONDS: `x` is not a"]),
        (LEAST, {"CONTROL__PORT": "1"}, ["SLUICE_SIDECAR_CONTROL__PORT: the file has no such key"]),
        (LEAST, {"SOURCES": "x"}, ["SLUICE_SIDECAR_SOURCES: must be a list"]),
    ],
)
def test_a_fault_is_reported_with_its_line(
    base: Path, text: str, environ: dict[str, str], said: list[str]
) -> None:
    found = complaints(base, text, **environ)
    assert len(found) == len(said)
    for each, expected in zip(found, said, strict=True):
        assert expected in each


def test_all_faults_are_reported_at_once(base: Path) -> None:
    text = "control: x\nlisten: y\nspol: {}\nspool: {mode: z}\nstaleness_seconds: w\n"
    found = complaints(base, text, DRAIN_SECONDS="v")
    assert len(found) == 7
    keys = ("control", "listen", "spol", "spool.mode", "staleness_seconds", "key_file", "DRAIN")
    for key in keys:
        assert any(key in each for each in found), key


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ("", "is empty: expected one line"),
        ("secret-thing", "does not hold an API key"),
        (KEY[:-1] + "x", "holds a mistyped or truncated key"),
        ("slc_ü", "does not hold an API key"),
        (KEY + KEY, "holds a mistyped or truncated key"),
        (f"{KEY}\n{KEY}", "does not hold an API key"),
    ],
)
def test_a_key_file_without_a_key_is_refused_without_showing_it(
    base: Path, held: str, said: str
) -> None:
    (base / "sidecar.key").write_text(held)
    [found] = complaints(base, LEAST)
    assert said in found
    assert not held or held not in found


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        read(tmp_path / "none.yaml", {}, "host")
    with pytest.raises(SettingsError):
        read(tmp_path, {}, "host")


def test_a_file_with_hundreds_of_faults_does_not_crash(base: Path) -> None:
    text = "".join("a: 1\n" for _ in range(500))
    assert len(complaints(base, text)) > 50


@pytest.mark.parametrize(
    ("control", "compress", "compresses"),
    [
        ("http://127.0.0.1:8700", "auto", False),
        ("http://localhost:8700", "auto", False),
        ("https://sluice.example", "auto", True),
        ("https://sluice.example", "never", False),
        ("http://127.0.0.1:8700", "always", True),
    ],
)
def test_records_are_compressed_if_they_leave_the_host(
    base: Path, control: str, compress: str, compresses: bool
) -> None:
    text = LEAST.replace("http://127.0.0.1:8700", control) + f"compress: {compress}\n"
    assert load(base, text).compresses is compresses
