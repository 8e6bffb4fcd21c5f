"""Libraries that take megabytes are imported only once the settings ask for them: in a function,
and in no module that is imported before."""

import re
from collections.abc import Iterable, Iterator

import pytest

from policies.ground.addresses import ListenAddress
from sidecar.protocols.registry import MODULES, load_protocol
from sidecar.protocols.shared import aws_signing
from sidecar.settings.model import AWS_KINDS, Source
from tests.architecture.tree import ROOT

# Imports in functions, and those for type checking, are indented.
_IMPORT = re.compile(r"^(?:from ([\w.]+) import (\([^)]*\)|.*)|import (.*))$", re.MULTILINE)
OURS = ("sidecar", "policies")


def _imported(text: str) -> Iterator[str]:
    """What a file imports at once. Of a name, it is not known whether it is a module."""
    for found in _IMPORT.finditer(text):
        module, names, whole = found.groups()
        if whole:
            yield from (each.split()[0] for each in whole.split(","))
        else:
            yield module
            yield from (f"{module}.{name}" for name in re.findall(r"\w+", names))


def libraries(roots: Iterable[str]) -> set[str]:
    """What is imported with these modules, besides ours."""
    left, seen, found = list(roots), set[str](), set[str]()
    while left:
        name = left.pop()
        top, _, below = name.partition(".")
        if top not in OURS:
            found.add(top)
            continue
        if name in seen:
            continue
        seen.add(name)
        left += [name.rpartition(".")[0]] if below else []
        for path in (f"{name.replace('.', '/')}.py", f"{name.replace('.', '/')}/__init__.py"):
            if (ROOT / path).is_file():
                left += _imported((ROOT / path).read_text())
    return found


def test_a_sidecar_imports_no_large_library_before_it_knows_its_settings() -> None:
    found = libraries(["sidecar.__main__", "sidecar.assembly"])
    assert {"uvloop", "aiohttp", "orjson"} <= found
    assert found.isdisjoint({"botocore", "grpc", "redis"})


def test_no_protocol_imports_botocore_before_it_signs() -> None:
    for place in MODULES.values():
        found = libraries(["sidecar.protocols.registry", place.partition(":")[0]])
        assert "botocore" not in found, place


def test_botocore_is_loaded_with_the_protocols_that_sign_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(aws_signing, "import_module", loaded.append)
    for kind in MODULES:
        loaded.clear()
        source = Source("a", kind, "http://a", ListenAddress("127.0.0.1", 0), "low")
        load_protocol(source, lambda: 0.0)
        assert any("botocore" in each for each in loaded) == (kind in AWS_KINDS), kind
