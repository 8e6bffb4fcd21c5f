"""What agents, users and policy authors write is text on every page, whatever it contains.

The pages may contain only elements and attributes that stand in a template. The browser's part is
in `browser/test_hostile_content.py`.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from http.client import HTTPMessage
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from control_api.console.static import StaticFiles
from deploy.commands.report.__main__ import main as report
from tests.control_api.console.addresses import Address, address_of, hostile_queries, shown_pages
from tests.control_api.console.hostile import HostileWorld, hostile_world
from tests.control_api.console.payloads import PAYLOADS, some_of_each_class
from tests.control_api.console.reader import Element, Shown, Visitor
from tests.runner import tiers
from tests.support.control_api import SUPERADMIN, running_control_api

ADDRESS_ATTRIBUTES = {"href", "src", "action", "formaction", "xlink:href"}
OWN_ADDRESSES = ("/console", "/docs", "/v1/", "#", "?")
MOST_PAGES = 20
LISTS: dict[str, Callable[[HostileWorld], list[str]]] = {
    "/console/policies/candidate": lambda world: world.names,
    "/console/policies/guardrails": lambda world: world.guarded,
    "/console/policies/sources": lambda world: world.source_patterns,
    "/console/keys": lambda world: world.names,
    "/console/alerts/rules": lambda world: world.names[:180],
    "/console/agents": lambda world: world.names,
    "/console/decisions": lambda world: world.names,
    "/console/policies": lambda world: world.names,
    "/console/audit/holds": lambda world: world.names,
}
"""What must be read as text on a list, over all of its pages."""


def _sources(folder: Traversable, *ends: str) -> Iterator[str]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _sources(each, *ends)
        elif each.name.endswith(ends):
            yield each.read_text("utf-8")


WRITTEN = "\n".join(_sources(files("control_api.console"), ".html", "charts.py"))
TAGS = {each.lower() for each in re.findall(r"<([a-zA-Z][a-zA-Z0-9]*)", WRITTEN)}
BARE = "autofocus checked disabled hidden multiple novalidate open readonly required selected"
ATTRIBUTES = set(BARE.split()) | {
    each.lower() for each in re.findall(r"([a-zA-Z][a-zA-Z0-9-]*)(?==[\"{])", WRITTEN)
}


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[HostileWorld]:
    with hostile_world(tmp_path_factory.mktemp("hostile"), pytestconfig) as made:
        yield made


@pytest.fixture(scope="module")
def visitor(world: HostileWorld) -> Visitor:
    return Visitor(world.api).sign_in(world.api.admin_key)


@pytest.fixture(scope="module")
def superadmin(world: HostileWorld) -> Visitor:
    return Visitor(world.api).sign_in(SUPERADMIN)


def test_there_are_two_hundred_payloads() -> None:
    assert len(set(PAYLOADS)) >= 200
    assert 50 <= len(some_of_each_class()) <= 65
    assert not [each for each in TAGS & {"script", "b", "iframe", "object"} if each != "script"]


def walk(element: Element) -> Iterator[Element]:
    for child in element.children:
        if isinstance(child, Element):
            yield child
            yield from walk(child)


def check(shown: Shown) -> None:
    """Raises if the page contains what no template wrote."""
    static = StaticFiles().prefix
    assert shown.status < 500, shown.address
    for element in walk(shown.page):
        where = f"{shown.address}: <{element.name} {element.attributes}>"
        assert element.name in TAGS, where
        assert set(element.attributes) <= ATTRIBUTES, where
        assert not [each for each in element.attributes if each.startswith("on")], where
        for name in ADDRESS_ATTRIBUTES & element.attributes.keys():
            target = urlsplit(element.attributes[name])
            assert (target.scheme, target.netloc) == ("", ""), where
            assert element.attributes[name].startswith(("/console", "/docs", "/v1/", "#", "?")), (
                where
            )
        if element.name == "script":
            assert element.attributes["src"].startswith(static), where
            assert not element.text, where


def listed(visitor: Visitor, address: str) -> Iterator[Shown]:
    """A list's pages, one after the other."""
    for _ in range(MOST_PAGES):
        shown = visitor.get(address)
        yield shown
        following = shown.page.find_all("a", rel="next")
        if not following:
            return
        address = following[0].attributes["href"]


@tiers.rotating(0, 6)
@pytest.mark.parametrize("path", [page.path for page in shown_pages()])
def test_a_page_shows_payloads_as_text(
    path: str, world: HostileWorld, visitor: Visitor, superadmin: Visitor
) -> None:
    by = superadmin if address_of(path).by == "superadmin" else visitor
    queries = hostile_queries(path, world)
    text = []
    for query in queries:
        where = path + (f"?{urlencode(query)}" if query else "")
        for shown in listed(by, where):
            check(shown)
            text.append(shown.page.text)
    whole = "\n".join(text)
    for each in LISTS[path](world) if path in LISTS else ():
        assert " ".join(each.split()) in whole, (path, each)


@pytest.mark.deep(
    stands_in="tests/control_api/console/test_typed_text.py::test_text_typed_into_a_filter_is_shown_as_text"
)
def test_filters_show_payloads_as_text(world: HostileWorld, visitor: Visitor) -> None:
    for number, page in enumerate(shown_pages()):
        if address_of(page.path) != Address():
            continue
        names = {"id", "done", "cursor", "to"}
        for form in visitor.get(page.path).main.find_all("form"):
            for kind in ("input", "select", "textarea"):
                names |= {each.attributes.get("name", "id") for each in form.find_all(kind)}
        # Others on each page, and each payload on some page.
        for payload in world.payloads[number % 9 :: 9]:
            check(visitor.get(f"{page.path}?{urlencode(dict.fromkeys(names, payload))}"))


@pytest.mark.deep(
    stands_in="tests/control_api/console/test_typed_text.py::test_the_name_that_a_browser_sends_is_shown_as_text"
)
def test_names_chosen_by_a_browser_or_a_provider_are_shown_as_text(tmp_path: Path) -> None:
    """A person's name is what the identity provider says, which others may control."""
    with running_control_api(tmp_path) as api:
        for each in PAYLOADS[::12]:
            agent = each.encode("latin-1", "ignore").decode("latin-1")
            sent = {"User_Agent": "".join(filter(str.isprintable, agent))}
            visitor = Visitor(api)
            body = {"key": api.admin_key}
            assert visitor.post("/console/sign-in", body, follow=False, **sent).status == 303
        with sqlite3.connect(tmp_path / "data" / "sluice.db") as connection:
            rows = connection.execute("SELECT session_id FROM console_sessions").fetchall()
            for (session_id,), each in zip(rows, PAYLOADS[::12], strict=True):
                change = "UPDATE console_sessions SET person = ?, browser = ? WHERE session_id = ?"
                connection.execute(change, (each, each, session_id))
        account = Visitor(api).sign_in(api.admin_key).get("/console/account")
        check(account)
        for each in PAYLOADS[::12]:
            assert " ".join(each.split()) in account.page.text, each


def test_a_table_for_spreadsheets_holds_no_formula(world: HostileWorld) -> None:
    answer = world.api.call("GET", "/v1/audit/export?format=csv")
    rows = list(csv.DictReader(io.StringIO(answer.raw.decode(), newline="")))
    assert {row["event_id"] for row in rows} >= set(world.events)
    cells = {value for row in rows for value in row.values()}
    assert not [each for each in cells if each.lstrip()[:1] in set("=+-@\t\r\uff1d\uff0b")]
    for each in world.names:
        assert {each, f"'{each}'"[:-1]} & cells, each


@pytest.mark.deep(
    stands_in="tests/deploy/commands/report/test_content.py::test_hostile_values_are_text"
)
def test_a_report_shows_payloads_as_text(world: HostileWorld, tmp_path: Path) -> None:
    export = tmp_path / "log.jsonl"
    export.write_bytes(world.api.call("GET", "/v1/audit/export").raw)
    written = "\n".join(_sources(files("deploy.commands.report"), ".py"))
    tags = {each.lower() for each in re.findall(r"<([a-zA-Z][a-zA-Z0-9]*)", written)}
    for each in world.names[::60]:
        folder = tmp_path / "report"
        assert report([str(export), f"--agent={each}", "-o", str(folder)]) == 0
        page = Shown(200, HTTPMessage(), (folder / "report.html").read_bytes(), each).page
        assert " ".join(each.split()) in page.text
        for element in walk(page):
            assert element.name in tags, element
            assert not [name for name in element.attributes if name.startswith("on")], element
        shutil.rmtree(folder)
