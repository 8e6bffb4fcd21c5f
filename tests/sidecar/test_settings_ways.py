"""What an operator writes of the ways to a data source, and what is said of it when it is wrong."""

from pathlib import Path

import pytest

from tests.sidecar.test_settings import LEAST, base, complaints, load

__all__ = ["base"]

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


def test_names_may_stand_in_one_text(base: Path) -> None:
    text = AGENT + "sources:\n" + item("a")
    [source] = load(base, text, SOURCES__0__HOSTS="a.test, b.test:81").sources
    assert source.hosts == ("a.test", "b.test:81")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hosts: ['*a.test']", "hosts: `*a.test`: the host is not a host"),
        ("hosts: [127.1]", "must be a list of strings"),
        ("hosts: ['127.1']", "hosts: `127.1`: the host is a number that is no IPv4 address"),
        ("hosts: {a: b}", "hosts: must be a string"),
        ("hosts: ['a.test:0']", "the port is not a number"),
        ("path: kb", "path: the target does not start with `/`"),
        ("path: /", "path: must be a path below `/`"),
        ("path: /a?b", "path: must be a path below `/`"),
        ("path: /a/../b", "path: the path holds a dot segment"),
        ("path: /a%2fb", "path: the path holds an escaped slash"),
    ],
)
def test_a_fault_is_told_once_and_with_its_place(base: Path, line: str, said: str) -> None:
    [told] = complaints(base, AGENT + "sources:\n" + item("a", line))
    assert said in told
    assert told.startswith("sidecar.yaml:")


@pytest.mark.parametrize(
    "upstream", ["http://127.1:80", "http://a..b", "http://a/x//y", "http://a/%2f"]
)
def test_an_upstream_that_has_two_readings_is_a_complaint(base: Path, upstream: str) -> None:
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
def test_sources_that_nothing_tells_apart_share_no_address(
    base: Path, one: list[str], two: list[str]
) -> None:
    [told] = complaints(base, AGENT + "sources:\n" + item("a", *one) + item("b", *two))
    assert "sources[1].listen: `127.0.0.1:18000` is the address of `sources[0].listen` too" in told
    assert "neither `hosts` nor `path` tells the two apart" in told


def test_a_source_that_nothing_leads_to_is_a_complaint(base: Path) -> None:
    [told] = complaints(base, AGENT + "sources:\n" + item("a", port=0))
    assert "sources[0].listen: is required" in told
