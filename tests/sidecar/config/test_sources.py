"""The settings of a data source, and the complaints about wrong ones."""

from pathlib import Path

import pytest

from sidecar.config.file import read
from sidecar.settings import model as declared
from tests.sidecar.config.settings_file import LEAST, SOURCE, complaints, load


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (("alias: kb", "alias: K B"), "sources[0].alias: `K B` must be 1 to 64 of a-z"),
        (("    kind: chroma\n", ""), "sources[0].kind: is required"),
        (("kind: chroma", "kind: mongo"), "`tcp`, `weaviate`, not `mongo`"),
        (("    sensitivity: medium\n", ""), "sources[0].sensitivity: is required"),
        (("sensitivity: medium", "sensitivity:"), "sources[0].sensitivity: is required"),
        (("kind: chroma", 'kind: ""'), "sources[0].kind: must be one of"),
        (("medium", 'medium\n    writes: ""'), "must be one of `deny`, `allow`, not ``"),
        (("medium", "secret"), "sources[0].sensitivity: must be one of `low`, `medium`"),
        (("    listen: 127.0.0.1:18000\n", ""), "sources[0].listen: is required"),
        (("    upstream: http://127.0.0.1:8000\n", ""), "sources[0].upstream: is required"),
        (("medium", "medium\n    writes: maybe"), "must be one of `deny`, `allow`, not `maybe`"),
        (("medium", "medium\n    mode: audit"), "must be one of `enforce`, `report`, not `audit`"),
        (("medium", "medium\n    header: x"), "sources[0].header: unknown key"),
        (("medium", "medium\n    names: [a]"), "sources[0].names: must be a mapping"),
        (
            ("medium", "medium\n    names: {contracts: {source_id: c}}"),
            "sources[0].names: `contracts` must begin with `chroma://kb/`",
        ),
        (
            ("medium", "medium\n    names: {chroma://kb/a: {sensitivity: x}}"),
            "sources[0].names.chroma://kb/a.sensitivity: must be one of",
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
            ("medium", "medium\n    methods: [{name: a/b}]"),
            "sources[0].methods: applies only to sources of the kind `mcp`",
        ),
        (
            ("medium", "medium\n    trailers: forward"),
            "sources[0].trailers: `forward` applies only to sources of the kind `rest`",
        ),
        (("medium", "medium\n    http: 3"), "sources[0].http: must be one of `1`, `2`, `auto`"),
        (("medium", "medium\n    http: 1.1"), "sources[0].http: must be one of `1`, `2`, `auto`"),
        (
            ("medium", "medium\n    exact_paths: [/a]"),
            "sources[0].exact_paths: applies only to sources of the kind `rest`",
        ),
        (
            ("medium", "medium\n    exact_paths: [/a%41]"),
            "sources[0].exact_paths: `/a%41` must be a path in its plain form, `/aA`",
        ),
        (
            ("medium", "medium\n    arguments: {search: a}"),
            "sources[0].arguments: apply only to sources of the kind `mcp`",
        ),
        (
            ("medium", "medium\n    aws: {region: eu-central-1}"),
            "sources[0].aws: applies only to sources of the kinds",
        ),
        (
            ("medium", "medium\n    grpc: http://127.0.0.1:1"),
            "sources[0].grpc: applies only to sources of the kinds milvus, pinecone, qdrant, weav",
        ),
        (
            ("medium", "medium\n    grpc_listen: 127.0.0.1:18001"),
            "sources[0].grpc_listen: applies only to sources of the kinds milvus",
        ),
        (("127.0.0.1:18000", "127.0.0.1:8710"), "sources[0].listen: `127.0.0.1:8710` is already"),
    ],
)
def test_a_fault_of_a_source_is_reported_with_its_line(
    base: Path, changed: tuple[str, str], expected: str
) -> None:
    found = complaints(base, LEAST + SOURCE.replace(*changed))
    assert len(found) == 1, found
    assert expected in found[0]
    assert found[0].startswith("sidecar.yaml:")


@pytest.mark.parametrize(
    ("aws", "expected"),
    [
        ("{credentials_file: none}", "aws.credentials_file: "),
        ("{region: 7}", "aws.region: must be a string"),
        ("{secret: x}", "aws.secret: unknown key"),
        ("eu-central-1", "aws: must be a mapping"),
    ],
)
def test_a_fault_of_credentials_is_reported_with_its_line(
    base: Path, aws: str, expected: str
) -> None:
    found = complaints(base, LEAST + SOURCE.replace("chroma", "s3") + f"    aws: {aws}\n")
    assert len(found) == 1, found
    assert expected in found[0]


def test_credentials_are_read_relative_to_the_file(base: Path) -> None:
    (base / "aws").write_text("[default]\n")
    aws = "    aws: {region: eu-central-1, profile: lake, credentials_file: aws}\n"
    text = LEAST + SOURCE.replace("chroma", "s3") + aws + "    http: 2\n"
    (base / "sidecar.yaml").write_text(text)
    [found] = read(base / "sidecar.yaml", {}, "host").sources
    assert found.aws == declared.Aws("eu-central-1", "lake", base / "aws")
    assert found.http == "2", "YAML reads it as a number"


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        ("{path: /, class: deny}", "routes[0].method: is required"),
        ("{method: get, path: /, class: deny}", "routes[0].method: `get` must be a method in cap"),
        ("{method: GET, path: a, class: deny}", "routes[0].path: `a` must begin with `/`"),
        ("{method: GET, path: /}", "routes[0].class: is required"),
        ("{method: GET, path: /, class: pass}", "routes[0].class: must be one of"),
        (
            "{method: GET, path: /, class: deny, sensitivity: x}",
            "routes[0].sensitivity: must be one of",
        ),
        ("{method: GET, path: /, class: deny, sourceid: x}", "did you mean `source_id`?"),
    ],
)
def test_a_fault_of_a_route_is_reported_with_its_line(
    base: Path, route: str, expected: str
) -> None:
    rest = SOURCE.replace("chroma", "rest") + f"    routes: [{route}]\n"
    found = complaints(base, LEAST + rest)
    assert len(found) == 1, found
    assert expected in found[0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("endpoint: mcp", "endpoint: `mcp` is not a plain path"),
        ("endpoint: /a/../b", "endpoint: `/a/../b` is not a plain path"),
        ('endpoint: ""', "endpoint: `` is not a plain path"),
        ("methods: [{name: a//b}]", "methods[0].name: `a//b` is not the name of a method"),
        ("methods: [{name: a/b, class: open}]", "methods[0].class: must be one of"),
        ("arguments: [search]", "arguments: must be a mapping"),
        ("arguments: {search: a..b}", "arguments.search: `a..b` must be names separated by dots"),
        ("arguments: {search: }", "arguments.search: is empty; write the argument"),
        ("arguments: {search: {a: b}}", "arguments.search: must be a string"),
    ],
)
def test_a_fault_of_an_mcp_source_is_reported(base: Path, line: str, expected: str) -> None:
    found = complaints(base, LEAST + SOURCE.replace("chroma", "mcp") + f"    {line}\n")
    assert expected in found[0]


def test_an_mcp_source_has_an_endpoint_and_arguments(base: Path) -> None:
    given = "    endpoint: /api/mcp\n    arguments: {search.docs: filter.collection}\n"
    whole = SOURCE.replace("chroma", "mcp")
    [source] = load(base, LEAST + whole).sources
    assert (source.endpoint, source.arguments) == ("/mcp", {})
    [source] = load(base, LEAST + whole + given).sources
    assert source.endpoint == "/api/mcp"
    assert source.arguments == {"search.docs": "filter.collection"}


def test_two_sources_share_neither_port_nor_name(base: Path) -> None:
    _, _, item = SOURCE.partition("sources:\n")
    found = complaints(base, LEAST + SOURCE + item)
    assert len(found) == 2
    assert (
        "sources[1].listen: `127.0.0.1:18000` is already the address of `sources[0].listen`"
        in (found[0])
    )
    assert "sources[1].alias: `kb` is already the alias of sources[0]" in found[1]


def test_a_source_without_an_agent_is_refused_with_a_message(base: Path) -> None:
    text = LEAST + SOURCE.replace("agent: {role: r, key_file: agent.key}\n", "")
    [found] = complaints(base, text)
    assert "agent: is required" in found
