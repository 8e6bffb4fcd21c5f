"""Which source of the kind `tcp` a redirected connection is for, without waiting for its first
bytes."""

from dataclasses import replace

from sidecar.http.authority import Authority
from sidecar.proxy.routing.source_lookup import AMBIGUOUS, TcpSources
from sidecar.settings.model import Source
from tests.support.proxy import source


def unread(alias: str, where: str, *hosts: str) -> Source:
    return replace(source(0, "tcp", alias=alias, hosts=hosts), upstream=f"tcp://{where}")


def meant(sources: list[Source], host: str, port: int) -> str | None:
    """The alias; empty where several could be meant."""
    found = TcpSources(sources).at(Authority(host, port))
    if found is None or found is AMBIGUOUS:
        return None if found is None else ""
    assert found.sole is not None
    return found.sole.alias


PG = unread("pg", "pg.test:5432")


def test_the_only_source_of_a_port_is_chosen_whatever_the_address() -> None:
    web = replace(source(0), upstream="http://web.test:80")
    assert meant([web, PG], "192.0.2.9", 5432) == "pg"
    assert meant([web, PG], "2001:db8::9", 5432) == "pg"
    assert meant([web, PG], "192.0.2.9", 80) is None
    assert meant([web], "192.0.2.9", 5432) is None


def test_a_host_without_a_port_does_not_mean_a_tcp_source() -> None:
    named = replace(PG, hosts=("db.test", "old.test:5433"))
    assert meant([named], "192.0.2.9", 5433) == "pg"
    assert meant([named], "192.0.2.9", 80) is None
    assert meant([named], "192.0.2.9", 443) is None


def test_addresses_choose_among_several_sources_and_unknown_ones_choose_none() -> None:
    one, two = unread("one", "192.0.2.1:5432"), unread("two", "two.test:5432", "[2001:db8::2]")
    assert meant([one, two], "192.0.2.1", 5432) == "one"
    assert meant([one, two], "2001:db8::2", 5432) == "two"
    assert meant([one, two], "192.0.2.3", 5432) == ""


def test_indistinguishable_sources_are_reported() -> None:
    other = unread("other", "other.test:5432")
    clashes = [(a.alias, b.alias, port) for a, b, port in TcpSources([PG, other]).clashes()]
    assert clashes == [("other", "pg", 5432)]
    assert list(TcpSources([PG, unread("one", "192.0.2.1:5433")]).clashes()) == []
