"""The direct imports of the project's files, and those that a contract in `pyproject.toml` forbids.

Reads the files' text, without an import graph, so it takes a tenth of what `lint-imports` takes. An
import that is only reached through another module is left to that.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from tests.architecture.tree import PACKAGES, ROOT

IMPORTS = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|.+)|import[ \t]+(.+))$", re.MULTILINE
)
"""A statement, with the module and the names that it takes from there, or with whole modules."""

_PLACES = {"forbidden": "source_modules", "independence": "modules", "layers": "containers"}
"""Where a contract of each type names the packages that it is about."""


def direct_imports() -> set[tuple[str, str]]:
    """Pairs of modules: the one that imports, and the one that is imported."""
    paths = {_module(path): path for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
    return {
        (importer, imported)
        for importer, path in paths.items()
        for imported in _imported(path.read_text(encoding="utf-8"), paths)
    }


def forbidden(pairs: set[tuple[str, str]], config: str) -> set[tuple[str, str, str]]:
    """The pairs that a contract of `config`, a `pyproject.toml`, forbids, each behind its id."""
    inside: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for pair in pairs:
        for package in _packages(pair[0]):
            inside[package].add(pair)
    contracts = tomllib.loads(config)["tool"]["importlinter"]["contracts"]
    return {
        (contract["id"], importer, imported)
        for contract in contracts
        for package in contract.get(_PLACES.get(contract["type"], ""), ())
        for importer, imported in inside[package]
        if _breaks(contract, package, importer, imported)
    } | {
        (contract["id"], importer, imported)
        for contract in contracts
        for package in contract.get("protected_modules", ())
        for importer, imported in pairs
        if package in _packages(imported)
        and _packages(importer).isdisjoint({package, *contract["allowed_importers"]})
    }


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(text: str, known: dict[str, Path]) -> Iterator[str]:
    for source, names, whole in IMPORTS.findall(text):
        for name in re.sub(r"#.*|[()]", "", names or whole).split(","):
            first = name.split()[0] if name.split() else ""
            module = f"{source}.{first}" if source else first
            # A name that is no module is a part of its source, and a library is one module.
            inside = module if module in known else source or module
            yield inside if inside in known else inside.partition(".")[0]


def _breaks(contract: dict[str, Any], package: str, importer: str, imported: str) -> bool:
    """Whether the contract forbids the import; `importer` is in `package`, one of its places."""
    above = _packages(imported)
    if contract["type"] == "layers":
        broken = package in above and _upwards(contract["layers"], package, importer, imported)
    else:
        others = {*contract.get("forbidden_modules", contract.get("modules", ()))} - {package}
        broken = not above.isdisjoint(others)
    return broken and not _ignored(contract, importer, imported)


def _upwards(layers: list[str], container: str, importer: str, imported: str) -> bool:
    """Whether an import between two children of `container` leads up, or beside its own layer."""
    depth = container.count(".") + 1
    ours, theirs = (each.split(".")[depth : depth + 1] for each in (importer, imported))
    places = {name: place for place, layer in enumerate(layers) for name in layer.split(" | ")}
    if ours == theirs or not {*ours, *theirs} <= places.keys() or not (ours and theirs):
        return False
    return places[theirs[0]] <= places[ours[0]]


def _ignored(contract: dict[str, Any], importer: str, imported: str) -> bool:
    pairs = (each.split(" -> ") for each in contract.get("ignore_imports", ()))
    return any(
        fnmatchcase(importer, one) and fnmatchcase(imported, other)
        for one, other in ([*pair] for pair in pairs)
    )


@cache
def _packages(module: str) -> frozenset[str]:
    """The module and the packages that it is in."""
    parts = module.split(".")
    return frozenset(".".join(parts[:length]) for length in range(1, len(parts) + 1))
