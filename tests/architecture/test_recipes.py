"""The recipes of CONTRIBUTING.md name files that exist, and newest examples that stand in them."""

from __future__ import annotations

import re

from tests.architecture.tree import PACKAGES, ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLE = "\nNewest example: "
QUOTED = re.compile(r"`([^`]+)`")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def recipes() -> dict[str, str]:
    """The recipes' texts by their titles, which stand in bold at the beginning of a line."""
    _, *parts = re.split(r"^\*\*(.+?)\*\*", section("Recipes"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def paths(text: str) -> set[str]:
    """The files and folders in backticks, from the root, but for patterns such as `<kind>`."""
    roots = tuple(f"{each}/" for each in (*PACKAGES, "tests"))
    return {each for each in QUOTED.findall(text) if each.startswith(roots) and "<" not in each}


def test_the_newest_example_of_each_recipe_is_where_it_says() -> None:
    found = recipes()
    assert [*found] == [
        "A protocol", "A `rest` source's mapping", "A route of the control API", "A setting",
        "A field of a record", "An alert rule", "A page of the console", "A check door",
    ]  # fmt: skip
    for title, text in found.items():
        steps, _, example = text.partition(EXAMPLE)
        assert "Tests: " in steps, title
        named = paths(example)
        assert any(each.startswith("tests/") for each in named), title
        # `word`, in `file`, `file`; `another form of the word`, in `file`.
        absent = [
            f"{title}: `{word}` is not in `{file}`"
            for clause in example.strip().split("; ")
            for word, *files in [QUOTED.findall(clause)]
            for file in files
            if word not in (ROOT / file).read_text(encoding="utf-8")
        ]
        assert not absent


def test_the_files_of_the_recipes_and_of_the_map_of_tests_exist() -> None:
    for title in ("Recipes", "If you change it, the test is"):
        named = paths(section(title))
        assert len(named) >= 30, title
        assert not [each for each in sorted(named) if not (ROOT / each).exists()]
