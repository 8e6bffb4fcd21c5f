"""The settings of how agents reach a data source, and the complaints about wrong ones."""

import json
from pathlib import Path

import pytest

from policies.ground.addresses import ListenAddress
from sidecar.http.tls_contexts import client_context
from sidecar.settings.model import Pair, UpstreamTls
from sidecar.settings.ports import ports_of
from tests.sidecar.config.settings_file import LEAST, complaints, load
from tests.support.certificates import authority

AGENT = LEAST + "agent: {role: r, key_file: agent.key}\n"


def item(alias: str, *lines: str, port: int = 18000) -> str:
    whole = [
        f"alias: {alias}", "kind: rest", "upstream: http://127.0.0.1:8000", "sensitivity: low",
        *([f"listen: 127.0.0.1:{port}"] if port else []), *lines,
    ]  # fmt: skip
    return "  - " + "\n    ".join(whole) + "\n"


def test_sources_share_an_address_by_name_and_by_path(base: Path) -> None:
    text = AGENT + "sources:\n" + item("a", "hosts: [a.test, '*.b.test']") + item("b", "path: /b")
    one, two = load(base, text).sources
    assert (one.hosts, one.path) == (("a.test", "*.b.test"), None)
    assert (two.hosts, two.path) == ((), "/b")
    assert one.listen == two.listen


def test_names_may_be_separated_by_commas(base: Path) -> None:
    text = AGENT + "sources:\n" + item("a")
    [source] = load(base, text, SOURCES__0__HOSTS="a.test, b.test:81").sources
    assert source.hosts == ("a.test", "b.test:81")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hosts: ['*a.test']", "hosts: `*a.test`: the host is not a valid host name or IP address"),
        ("hosts: [127.1]", "must be a list of strings"),
        ("hosts: ['127.1']", "hosts: `127.1`: the host ends in a number, but is not an IPv4 addr"),
        ("hosts: {a: b}", "hosts: must be a list of strings, not a mapping"),
        ("hosts: ['a.test:0']", "the port is not a number"),
        ("path: kb", "path: `kb`: the target does not start with `/`"),
        ("path: /", "path: `/` must be a path below `/`"),
        ("path: /a?b", "path: `/a?b` must be a path below `/`"),
        ("path: /a/../b", "path: `/a/../b`: the path contains a dot segment"),
        ("path: /a%2fb", "path: `/a%2fb`: the path contains an escaped slash"),
    ],
)
def test_a_fault_is_reported_once_with_its_line(base: Path, line: str, said: str) -> None:
    [told] = complaints(base, AGENT + "sources:\n" + item("a", line))
    assert said in told
    assert told.startswith("sidecar.yaml:")


@pytest.mark.parametrize(
    "upstream", ["http://127.1:80", "http://a..b", "http://a/x//y", "http://a/%2f"]
)
def test_an_ambiguous_upstream_is_refused_with_a_message(base: Path, upstream: str) -> None:
    text = item("a").replace("http://127.0.0.1:8000", upstream)
    [told] = complaints(base, AGENT + "sources:\n" + text)
    assert "sources[0].upstream: " in told


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ([], []),
        (["hosts: [a.test]"], ["hosts: [b.test, A.test.]"]),
        (["path: /kb"], ["path: /kb/"]),
        (["path: /kb", "hosts: [a.test]"], ["path: /%6bb", "hosts: [a.test]"]),
    ],
)
def test_sources_that_share_an_address_must_differ(
    base: Path, one: list[str], two: list[str]
) -> None:
    [told] = complaints(base, AGENT + "sources:\n" + item("a", *one) + item("b", *two))
    assert "sources[1].listen: `127.0.0.1:18000` is already the address of `sources[0]" in told
    assert "distinguish the two by `hosts` or `path`" in told


GRPC = "grpc: http://127.0.0.1:6334"


def of_kind(kind: str, alias: str, *lines: str, port: int = 18000) -> str:
    return item(alias, *lines, port=port).replace("kind: rest", f"kind: {kind}")


def test_a_source_has_an_address_for_grpc_and_a_port_that_leads_there(base: Path) -> None:
    text = AGENT + "sources:\n" + of_kind("qdrant", "a", GRPC + "/", "grpc_listen: 127.0.0.1:18001")
    text += of_kind("pinecone", "b", "grpc_listen: 127.0.0.1:18002", port=0)
    text += of_kind("weaviate", "c", GRPC.replace("6334", "50051"), port=18003)
    qdrant, pinecone, weaviate = settings = load(base, text).sources
    assert [each.grpc for each in settings] == [GRPC[6:], None, "http://127.0.0.1:50051"]
    assert qdrant.grpc_listen == ListenAddress("127.0.0.1", 18001)
    assert (pinecone.listen, weaviate.grpc_listen) == (None, None)
    [mine] = [each for each in ports_of(load(base, text)) if each.listen == qdrant.grpc_listen]
    assert (mine.name, mine.keyless) == ("`grpc_listen` of source `a`", True)
    assert mine.serves == "qdrant at http://127.0.0.1:6334, without a key"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ["grpc: http://127.0.0.1:1/a"],
            "grpc: `http://127.0.0.1:1/a` must be http://host:port or",
        ),
        (["grpc: tcp://127.0.0.1:1"], "grpc: `tcp://127.0.0.1:1` is not http://host:port or"),
        (["grpc: http://127.1:1"], "grpc: `http://127.1:1`: the host ends in a number"),
        (["grpc_listen: 127.0.0.1:1"], "grpc_listen: needs `grpc`, the address of the source's"),
        ([GRPC, "grpc_listen: 127.0.0.1:18000"], "grpc_listen: is the address of `listen`, which"),
        ([GRPC, "grpc_listen: 127.0.0.1:8710"], "grpc_listen: `127.0.0.1:8710` is already the add"),
        ([GRPC, "grpc_listen: 127.0.0.1:18009"], "is already the address of `sources[0].listen`"),
        ([GRPC, "tls: {server_name: a.test}"], "tls: applies only to https://, and `upstream`"),
        (["grpc: https://a.test", "tls: {certificate: x}"], "tls: needs both `certificate` and"),
    ],
)
def test_a_fault_of_the_address_for_grpc_is_reported(
    base: Path, lines: list[str], said: str
) -> None:
    text = AGENT + "sources:\n" + item("other", port=18009) + of_kind("qdrant", "a", *lines)
    [told] = complaints(base, text)
    assert "sources[1]." in told
    assert said in told


def test_a_source_without_a_listener_is_refused_with_a_message(base: Path) -> None:
    [told] = complaints(base, AGENT + "sources:\n" + item("a", port=0))
    assert "sources[0].listen: is required" in told


@pytest.fixture
def pair(base: Path) -> dict[str, str]:
    made = authority().issue("kb.test")
    other = authority().issue("other.test", password=b"secret")
    for name, path in {
        "tls.crt": made.certificate, "tls.key": made.key, "locked.key": other.key,
        "ca.pem": authority().path,
    }.items():  # fmt: skip
        (base / name).write_bytes(path.read_bytes())
    return {"certificate": "tls.crt", "key": "tls.key"}


def test_certificates_are_read_at_the_start(base: Path, pair: dict[str, str]) -> None:
    text = item("a", f"listen_tls: {pair}", "tls: {ca: ca.pem, server_name: A.test}")
    text = text.replace("http://", "https://")
    [source] = load(base, AGENT + "sources:\n" + text).sources
    assert source.listen_tls == Pair(base / "tls.crt", base / "tls.key")
    assert source.tls == UpstreamTls(base / "ca.pem", None, None, "a.test")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("listen_tls: {certificate: tls.crt}", "listen_tls.key: is required"),
        ("listen_tls: {certificate: none, key: tls.key}", "no such file or directory"),
        ("listen_tls: {certificate: tls.key, key: tls.key}", "listen_tls: `certificate` and `key`"),
        ("listen_tls: {certificate: tls.crt, key: locked.key}", "listen_tls: `certificate`"),
        ("listen_tls: {certificate: ca.pem, key: tls.key}", "key values mismatch"),
        ("listen_tls: {certificate: tls.crt, key: tls.key, verify: no}", "unknown key"),
        ("tls: {ca: none}", "none`: ENOENT (no such file"),
        ("tls: {ca: tls.key}", "tls: `ca`"),
        ("tls: {certificate: tls.crt}", "tls: needs both `certificate` and `key`"),
        ("tls: {verify: false}", "tls.verify: unknown key"),
        ("tls: {server_name: 'a b'}", "tls.server_name: `a b`: the host is not a valid host name"),
        ("addresses: [10.0.0.0/33]", "addresses: `10.0.0.0/33` is not a network"),
        ("addresses: [10.0.0.1/8]", "addresses: `10.0.0.1/8` is not a network"),
    ],
)
def test_a_fault_of_tls_is_reported_at_the_start(
    base: Path, pair: dict[str, str], line: str, said: str
) -> None:
    text = item("a", line).replace("http://", "https://")
    [told] = complaints(base, AGENT + "sources:\n" + text)
    assert said in told, told


def test_tls_applies_only_to_an_https_upstream(base: Path) -> None:
    [told] = complaints(base, AGENT + "sources:\n" + item("a", "tls: {server_name: a.test}"))
    assert "tls: applies only to https://, and `upstream`" in told


def test_the_control_api_is_verified_by_files_relative_to_this_one(
    base: Path, pair: dict[str, str]
) -> None:
    text = LEAST.replace("http://", "https://")
    given = "{ca: ca.pem, server_name: A.test, certificate: tls.crt, key: tls.key}"
    found = load(base, f"{text}control_tls: {given}\n")
    assert found.control_tls == UpstreamTls(
        base / "ca.pem", base / "tls.crt", base / "tls.key", "a.test"
    )
    found = load(base, text, CONTROL_TLS__CA=str(base / "ca.pem"))
    assert found.control_tls == UpstreamTls(base / "ca.pem")
    [told] = complaints(base, text + "control_tls: {ca: none}\n")
    assert "control_tls: `ca` can't be used: `" in told
    [told] = complaints(base, LEAST + "control_tls: {ca: ca.pem}\n")
    assert "control_tls: applies only to https://, and `control`" in told


def test_an_authority_may_be_in_the_settings_themselves(base: Path, pair: dict[str, str]) -> None:
    text = LEAST.replace("http://", "https://")
    pem = (base / "ca.pem").read_text()
    found = load(base, f"{text}control_tls: {json.dumps({'ca': pem})}\n")
    assert found.control_tls == UpstreamTls(pem)
    assert client_context(found.control_tls).get_ca_certs()
    for damaged in (pem[:80], pem.replace("MII", "!!!"), "-----BEGIN CERTIFICATE-----"):
        [told] = complaints(base, f"{text}control_tls: {json.dumps({'ca': damaged})}\n")
        assert "control_tls: `ca` can't be used: the text" in told


def test_sources_on_one_address_have_one_certificate(base: Path, pair: dict[str, str]) -> None:
    text = AGENT + "sources:\n" + item("a", "path: /a", f"listen_tls: {pair}")
    [told] = complaints(base, text + item("b", "path: /b"))
    assert "sources[1].listen_tls: must be the same as in sources[0]" in told


def test_a_forward_proxy_leads_to_sources_without_listen(base: Path, pair: dict[str, str]) -> None:
    text = "forward_proxy: 127.0.0.1:8711\nencrypted_hello: allow\n" + AGENT
    told = load(base, text + "sources:\n" + item("a", f"terminate: {pair}", port=0))
    assert told.forward_proxy == ListenAddress("127.0.0.1", 8711)
    assert told.encrypted_hello == "allow"
    assert told.sources[0].listen is None
    assert told.sources[0].terminate == Pair(base / "tls.crt", base / "tls.key")


@pytest.mark.parametrize(
    ("one", "two", "shared"),
    [
        ([], [], "127.0.0.1:8000"),
        (["hosts: [a.test]"], ["hosts: ['A.test.:443']"], "a.test:443"),
        ([], ["grpc: http://127.0.0.1:8000"], "127.0.0.1:8000"),
        (["grpc: https://a.test"], ["grpc: https://A.test.:443"], "a.test:443"),
    ],
)
def test_a_name_leads_to_one_source(
    base: Path, one: list[str], two: list[str], shared: str
) -> None:
    text = "forward_proxy: 127.0.0.1:8711\n" + AGENT + "sources:\n"
    other = item("b", port=0).replace(":8000", ":8001" if two else ":8000")
    key = "grpc" if "grpc" in str(two) else "hosts"
    text += item("a", *one, port=0) + other + "    ".join(["", *two])
    [told] = complaints(base, text.replace("kind: rest", "kind: qdrant"))
    assert f"sources[1].{key}: `{shared}` already leads to sources[0]" in told


def test_a_forward_proxy_has_an_address_of_its_own(base: Path) -> None:
    text = "forward_proxy: 127.0.0.1:8710\n" + AGENT + "sources:\n" + item("a")
    [told] = complaints(base, text)
    assert "forward_proxy: `127.0.0.1:8710` is already the address of `listen`" in told


TRANSPARENT = "transparent: 127.0.0.1:8712\n" + AGENT + "sources:\n"


def unread(alias: str, upstream: str, *lines: str) -> str:
    """A source of the kind `tcp` without `listen`."""
    text = item(alias, *lines, port=0).replace("http://127.0.0.1:8000", upstream)
    return text.replace("kind: rest", "kind: tcp")


def test_transparent_leads_to_sources_without_listen(base: Path) -> None:
    text = TRANSPARENT + item("a", port=0) + unread("pg", "tcp://pg.test:5432")
    told = load(base, text)
    assert told.transparent == ListenAddress("127.0.0.1", 8712)
    assert [each.listen for each in told.sources] == [None, None]
    assert told.sources[1].upstream == "tcp://pg.test:5432"


def test_a_check_of_the_redirect_needs_the_port_that_it_checks(base: Path) -> None:
    [told] = complaints(base, LEAST + "redirect_check_seconds: 10\n")
    assert "redirect_check_seconds: needs `transparent`" in told


def test_the_address_of_a_transparent_proxy_must_be_its_own(base: Path) -> None:
    text = TRANSPARENT.replace("8712", "8710") + item("a")
    [told] = complaints(base, text)
    assert "transparent: `127.0.0.1:8710` is already the address of `listen`" in told


@pytest.mark.parametrize(
    ("upstream", "said"),
    [
        ("http://pg.test:5432", "is not tcp://host:port"),
        ("tcp://pg.test", "the port is missing"),
        ("tcp://pg.test:0", "is not tcp://host:port"),
        (
            "tcp://pg.test:5432/db",
            "`tcp://pg.test:5432/db` must be tcp://host:port, without a path",
        ),
        ("tcp://u:p@pg.test:5432", "must be only scheme, host, port and path"),
        ("tcp://127.1:5432", "`tcp://127.1:5432`: the host ends in a number"),
    ],
)
def test_a_tcp_upstream_is_a_host_and_a_port(base: Path, upstream: str, said: str) -> None:
    [told] = complaints(base, TRANSPARENT + unread("pg", upstream))
    assert "sources[0].upstream: " in told
    assert said in told


def test_only_the_kind_tcp_has_a_tcp_upstream(base: Path) -> None:
    text = item("a", port=0).replace("http://", "tcp://")
    [told] = complaints(base, TRANSPARENT + text)
    assert "is not http://host:port or https://host:port" in told


@pytest.mark.parametrize(
    "line",
    [
        "writes: deny",
        "sensitivity_field: level",
        "path: /a",
        "names: {}",
        "routes: []",
        "names: {'tcp://pg/a': {source_id: a}}",
        "tls: {server_name: a.test}",
    ],
)
def test_a_tcp_source_has_no_settings_of_requests(base: Path, line: str) -> None:
    [told] = complaints(base, TRANSPARENT + unread("pg", "tcp://pg.test:5432", line))
    assert f"sources[0].{line.partition(':')[0]}: " in told


def test_writes_to_a_tcp_source_may_be_allowed_explicitly(base: Path) -> None:
    text = TRANSPARENT + unread("pg", "tcp://pg.test:5432", "writes: allow")
    assert load(base, text).sources[0].writes == "allow"


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (unread("a", "tcp://a.test:5432"), unread("b", "tcp://b.test:5432")),
        (unread("a", "tcp://192.0.2.1:5432"), unread("b", "tcp://b.test:5432")),
        (unread("a", "tcp://a.test:8000"), item("b", port=0)),
        (unread("a", "tcp://a.test:80"), item("b", "hosts: [b.test]", port=0)),
    ],
)
def test_a_redirected_port_leads_to_one_tcp_source(base: Path, one: str, two: str) -> None:
    [told] = complaints(base, TRANSPARENT + one + two)
    assert "]: port " in told
    assert "can be distinguished only if" in told
    # The forward proxy learns a name, which distinguishes them.
    other = TRANSPARENT.replace("transparent: 127.0.0.1:8712", "forward_proxy: 127.0.0.1:8711")
    assert len(load(base, other + one + two).sources) == 2


def test_addresses_distinguish_sources_on_one_port(base: Path) -> None:
    one = unread("a", "tcp://192.0.2.1:5432")
    two = unread("b", "tcp://b.test:5432", "hosts: ['[2001:db8::1]', b.other.test]")
    assert len(load(base, TRANSPARENT + one + two).sources) == 2


def test_a_tcp_source_shares_no_address(base: Path) -> None:
    text = unread("b", "tcp://b.test:5432", "listen: 127.0.0.1:18000", "hosts: [b.test]")
    [told] = complaints(base, AGENT + "sources:\n" + item("a") + text)
    assert "sources[1].listen: `127.0.0.1:18000` is already the address of `sources[0]" in told


@pytest.mark.parametrize("listener", ["forward_proxy", "transparent"])
def test_a_proxy_listener_without_sources_is_refused_with_a_message(
    base: Path, listener: str
) -> None:
    [told] = complaints(base, f"{listener}: 127.0.0.1:8711\n" + AGENT)
    assert f"{listener}: leads to no source; add one" in told
