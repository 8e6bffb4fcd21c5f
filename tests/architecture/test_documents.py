"""Every link in a document leads somewhere; ARCHITECTURE.md has every package and large file."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.architecture import import_graph
from tests.architecture.tree import ROOT, files

LINK = re.compile(r"\]\(([^)#\s]+)(?:#([\w-]+))?\)")
NAMED_FILE = re.compile(r"`([\w./-]*\w\.py)`")
NAMES_OF_OTHERS = {
    ("tests/architecture/test_readmes.py", "settings.py"),  # of either service
    ("tests/programs/sources.py", "conftest.py"),  # Chroma's
}
MAX_LINES = 400
MAX_MODULES = 15
DOCUMENTS = [path for path in files() if path.suffix == ".md"]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(text: str) -> set[str]:
    """The anchors that a Markdown viewer gives the headings."""
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_every_link_in_a_document_has_a_target(path: Path) -> None:
    broken = []
    for target, anchor in LINK.findall(path.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        found = path.parent / target
        known = found.exists() and (
            not anchor or anchor in anchors(found.read_text(encoding="utf-8"))
        )
        if not known:
            broken.append(f"{target}#{anchor}" if anchor else target)
    assert not broken


def test_every_file_that_a_document_names_exists() -> None:
    """A bare name is a file beside the document or below; any other is named with its folder."""
    tracked = [path for path in files() if path.suffix in (".md", ".py")]
    modules: dict[str, list[str]] = {}
    for path in tracked:
        modules.setdefault(path.name, []).append(name(path))
    missing = []
    for path in tracked:
        document = name(path)
        if document == "CHANGELOG.md" or document.startswith("tests/vectors/"):
            continue
        text = path.read_text(encoding="utf-8")
        folder = document.removesuffix(path.name)
        for found in NAMED_FILE.finditer(text):
            named = found[1]
            known = any(
                f"/{each}".endswith(f"/{named}") and ("/" in named or each.startswith(folder))
                for each in modules.get(named.rpartition("/")[2], ())
            )
            if not known and (document, named) not in NAMES_OF_OTHERS:
                line = text.count("\n", 0, found.start()) + 1
                missing.append(f"{document}:{line}: {named}")
    assert not missing


def test_the_map_follows_a_decision_a_request_and_a_change() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for title in ("a decision", "a proxied request", "a policy change"):
        section = text.partition(f"## The life of {title}\n")[2].partition("\n## ")[0]
        assert len(LINK.findall(section)) >= 7


def test_every_long_file_and_every_large_folder_is_explained() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition("## Sizes\n")[2].partition("\n## ")[0]
    explained = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    modules = [path for path in files() if path.suffix == ".py" and name(path)[:5] != "tests"]
    folders = Counter(name(path.parent) + "/" for path in modules)
    long = [name(path) for path in modules if len(path.read_text().splitlines()) > MAX_LINES]
    wide = [folder for folder, count in folders.items() if count > MAX_MODULES]
    assert sorted(explained) == sorted(long + wide)


def test_the_drawn_imports_are_the_imports() -> None:
    text = import_graph.PAGE.read_text(encoding="utf-8")
    assert text == import_graph.drawn(text), "run `python -m tests.architecture.import_graph`"


def test_every_folder_of_the_services_stands_in_a_layer() -> None:
    """Import Linter proves the order of the layers; this proves that each folder is in one."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for service in ("sidecar", "control_api", "policies"):
        contract = text.partition(f'containers = ["{service}"]')[2].partition("]\n\n")[0]
        folders = {each.parent.name for each in (ROOT / service).glob("*/__init__.py")}
        named = set(re.findall(r"\w+", contract))
        assert folders <= named
