"""Draws the import graphs in ARCHITECTURE.md.

`python -m tests.architecture.import_graph` writes them. An import that follows from others is left
out (a > b > c implies that c is below a), so that a drawing shows little more than the order.
Imports for type checking count.
"""

from __future__ import annotations

import re

import grimp

from tests.architecture.tree import ROOT

DRAWN = ("sidecar", "sidecar.proxy", "control_api", "policies")
PAGE = ROOT / "ARCHITECTURE.md"
Edges = dict[str, set[str]]


def edges(container: str) -> Edges:
    """Which children of `container` each child imports."""
    root = container.partition(".")[0]
    graph = grimp.build_graph(root, cache_dir=None, exclude_type_checking_imports=False)
    depth = container.count(".") + 2

    def child(module: str) -> str | None:
        inside = module.startswith(f"{container}.")
        return module.split(".")[depth - 1] if inside else None

    found: Edges = {}
    for module in graph.modules:
        if (one := child(module)) is None:
            continue
        others = {child(each) for each in graph.find_modules_directly_imported_by(module)}
        found.setdefault(one, set()).update(each for each in others if each and each != one)
    return found


def reduced(found: Edges) -> Edges:
    """The graph without edges that follow from the rest. Raises `RecursionError` if there is a
    cycle."""

    def below(one: str) -> set[str]:
        return found[one] | {each for other in found[one] for each in below(other)}

    return {
        one: {each for each in others if not any(each in below(other) for other in others)}
        for one, others in found.items()
    }


def drawing(container: str) -> str:
    """The graph as Mermaid text."""
    lines = [
        f"    {one.strip('_')} --> {other.strip('_')}"
        for one, others in sorted(reduced(edges(container)).items())
        for other in sorted(others)
    ]
    return "\n".join(["```mermaid", "flowchart TD", *lines, "```"])


def drawn(page: str) -> str:
    """The page with current drawings; each is below a heading with its container's name."""
    for container in DRAWN:
        below = re.compile(rf"(### `{re.escape(container)}`\n\n)```mermaid\n.*?\n```", re.DOTALL)
        assert below.search(page), container
        page = below.sub(lambda found, c=container: found[1] + drawing(c), page)  # type: ignore[misc]
    return page


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
