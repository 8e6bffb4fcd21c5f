"""Which source a name and a path lead to, and that everything else leads nowhere."""

from typing import Any

import pytest

from policies.ground.addresses import ListenAddress
from policies.ground.errors import Malformed
from sidecar.http.authority import Authority, HostPattern, authority
from sidecar.http.request_target import canonical
from sidecar.proxy.routing.source_lookup import SharedPort, SourceTable, grpc_address
from sidecar.settings.model import Kind, Source


def source(
    alias: str, upstream: str = "http://up.test:8000", kind: Kind = "rest", **more: Any
) -> Source:
    return Source(alias, kind, upstream, ListenAddress("127.0.0.1", 1), "low", **more)


def shared(host: str | None, target: str, *sources: Source) -> tuple[str, str] | None:
    asked = None if host is None else authority(host, 0)
    found = SharedPort(sources).find(asked, canonical(target))
    return None if found is None else (found.source.alias, found.target)


def named(asked: str, *sources: Source) -> list[str]:
    group = SourceTable(sources).at(authority(asked))
    return [] if group is None else [row.source.alias for row in group.rows]


KB = source("kb", hosts=("kb.test", "*.docs.test"))
CRM = source("crm", hosts=("crm.test:8080", "special.docs.test"))
ALL = source("all", path="/all")


@pytest.mark.parametrize(
    ("host", "alias"),
    [
        ("kb.test", "kb"),
        ("KB.test.:18000", "kb"),
        ("a.docs.test", "kb"),
        ("a.b.docs.test", "kb"),
        ("special.docs.test", "crm"),
        ("crm.test:8080", "crm"),
        ("crm.test", None),
        ("docs.test", None),
        ("xdocs.test", None),
        ("a.kb.test", None),
        ("kb.test.evil.test", None),
        (None, None),
    ],
)
def test_sources_on_a_shared_address_are_chosen_by_name(
    host: str | None, alias: str | None
) -> None:
    found = shared(host, "/x", KB, CRM, ALL)
    assert (found and found[0]) == alias


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/kb", ("kb", "/")),
        ("/kb/", ("kb", "/")),
        ("/kb/a?b=/c", ("kb", "/a?b=/c")),
        ("/kb/v2/x", ("v2", "/x")),
        ("/%6bb/a%20b/", ("kb", "/a%20b/")),
        ("/kb+/x", ("plus", "/x")),
        ("/kb%2B/x", ("plus", "/x")),
        ("/kbx", None),
        ("/KB/x", None),
        ("/", None),
        ("/x/kb/y", None),
    ],
)
def test_sources_on_a_shared_address_are_chosen_by_path(
    target: str, expected: tuple[str, str] | None
) -> None:
    sources = source("kb", path="/kb/"), source("v2", path="/kb/v2"), source("plus", path="/kb+")
    assert shared("any.test", target, *sources) == expected


def test_the_only_source_on_an_address_is_chosen_whatever_the_host() -> None:
    assert shared("evil.test", "/x", KB) == ("kb", "/x")
    assert shared("evil.test", "/all/x", ALL) == ("all", "/x")
    assert shared("evil.test", "/x", ALL) is None


def test_a_name_precedes_a_path_and_a_source_with_neither_comes_last() -> None:
    rest = source("rest")
    both = source("both", hosts=("kb.test",), path="/deep")
    sources = rest, KB, both, source("path", path="/deep")
    assert shared("kb.test", "/deep/x", *sources) == ("both", "/x")
    assert shared("kb.test", "/x", *sources) == ("kb", "/x")
    assert shared("other.test", "/deep/x", *sources) == ("path", "/x")
    assert shared("other.test", "/x", *sources) == ("rest", "/x")


@pytest.mark.parametrize(
    ("asked", "aliases"),
    [
        ("up.test:8000", ["kb"]),
        ("kb.test:8000", ["kb"]),
        ("kb.test:80", ["kb"]),
        ("kb.test:443", ["kb"]),
        ("kb.test:8001", []),
        ("up.test:80", []),
        ("a.docs.test:443", ["kb"]),
        ("crm.test:8080", ["crm"]),
        ("crm.test:443", []),
        ("api.test:443", ["crm"]),
        ("10.0.0.5:9000", ["bare"]),
        ("10.0.0.6:9000", []),
    ],
)
def test_a_name_and_port_lead_to_their_source(asked: str, aliases: list[str]) -> None:
    crm = source("crm", "https://API.test", hosts=("crm.test:8080",))
    assert named(asked, KB, crm, source("bare", "http://10.0.0.5:9000")) == aliases


def test_sources_at_one_name_are_chosen_by_the_paths_of_their_upstreams() -> None:
    one, two = source("one", "http://up.test/api"), source("two", "http://up.test/api/v2/")
    group = SourceTable((one, two)).at(Authority("up.test", 80))
    assert group is not None
    assert group.sole is None
    found = [group.find(canonical(each)) for each in ("/api/x", "/api/v2/x", "/api%2e/x", "/x")]
    assert [each and (each.source.alias, each.target) for each in found] == [
        ("one", "/x"), ("two", "/x"), None, None,
    ]  # fmt: skip
    assert not list(SourceTable((one, two)).clashes())


@pytest.mark.parametrize(
    ("asked", "urls"),
    [
        ("up.test:80", ["http://up.test/api"]),
        ("g.test:6334", ["https://g.test:6334"]),
        ("kb.test:6334", ["https://g.test:6334"]),
        ("kb.test:443", ["http://up.test/api", "https://g.test:6334"]),
        ("kb.test:80", ["http://up.test/api"]),
        ("g.test:80", []),
    ],
)
def test_grpc_leads_to_its_source(asked: str, urls: list[str]) -> None:
    both = source(
        "kb", "http://up.test/api", "qdrant", grpc="https://g.test:6334", hosts=("kb.test",)
    )
    group = SourceTable((both,)).at(authority(asked))
    assert ([] if group is None else [row.url for row in group.rows]) == urls
    if group is not None:
        assert (group.aliases, group.sole) == (("kb",), both)
        call = group.find(canonical("/qdrant.Points/Search"))
        assert (call and call.target) == ("/qdrant.Points/Search" if urls[-1][-1] == "4" else None)


@pytest.mark.parametrize(
    ("kind", "grpc", "expected"),
    [
        ("qdrant", None, None),
        ("qdrant", "http://g.test:6334", Authority("g.test", 6334)),
        ("pinecone", None, Authority("up.test", 443)),
        ("pinecone", "https://g.test", Authority("g.test", 443)),
    ],
)
def test_calls_of_grpc_have_an_address(
    kind: Kind, grpc: str | None, expected: Authority | None
) -> None:
    assert grpc_address(source("kb", "https://up.test/api", kind, grpc=grpc)) == expected


def test_two_indistinguishable_sources_are_reported() -> None:
    one, two = source("one", "https://up.test"), source("two", hosts=("up.test",))
    [(first, second, name)] = SourceTable((one, two)).clashes()
    assert (first.alias, second.alias, str(name)) == ("one", "two", "up.test:443")


@pytest.mark.parametrize(
    "text",
    ["*", "*.", "*example.com", "a.*.com", "*.*.com", "*.1.2.3.4", "*.[::1]", "a b", "", "a:x"],
)
def test_an_invalid_name_of_a_source_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        HostPattern.parse(text)
