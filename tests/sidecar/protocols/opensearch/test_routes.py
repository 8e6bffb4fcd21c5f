"""Every call that the two client libraries can make has a class, or is left out on purpose. The
paths are read from the libraries' own source."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import elasticsearch
import opensearchpy
import pytest

from sidecar.http.request_target import canonical
from sidecar.protocols.opensearch.protocol import OpenSearch
from sidecar.protocols.opensearch.routes import ROUTES
from sidecar.protocols.protocol import RouteClass
from tests.support.proxy import CLOCK, source

# A part of the path of each call that is denied as `unclassified_route`.
LEFT_OUT = {
    # These read an index in their own way.
    "_eql", "_graph", "_mvt", "_terms_enum", "_rollup_search", "_fleet",
    # These return numbers about all indices, or about the inside of one.
    "_field_usage_stats", "_disk_usage", "_shard_stores", "_stats", "_segments", "_recovery",
    "_searchable_snapshots",
    # Maintenance of an index, and copies of it elsewhere.
    "_cache", "_forcemerge", "_analyze", "_reload_search_analyzers", "_ccr", "_ilm", "_lifecycle",
    "_migration", "_rollup", "ingestion", "stream",
    # Other clusters.
    "cluster",
}  # fmt: skip

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")
SAMPLE = "idx"


def _opensearch_calls() -> Iterator[tuple[str, str]]:
    root = Path(opensearchpy.__file__).parent
    for path in [*(root / "client").glob("*.py"), *(root / "plugins").glob("*.py")]:
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                yield from _made_paths(function)


def _made_paths(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Method (`*` if it is not a constant) and path."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    sent = [call for call in calls if getattr(call.func, "attr", "") == "perform_request"]
    methods = {
        call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else "*"
        for call in sent
    }
    if not sent:
        return
    method = methods.pop() if len(methods) == 1 else "*"
    for call in sent:
        if len(call.args) > 1 and isinstance(call.args[1], ast.Constant):
            yield str(method), str(call.args[1].value)
    for call in calls:
        if getattr(call.func, "id", "") != "_make_path":
            continue
        parts = [part.value if isinstance(part, ast.Constant) else SAMPLE for part in call.args]
        yield str(method), "/" + "/".join(map(str, parts))


def _elasticsearch_calls() -> Iterator[tuple[str, str]]:
    root = Path(elasticsearch.__file__).parent / "_sync" / "client"
    for path in root.glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            text = ast.unparse(function)
            methods = set(re.findall(r"perform_request\('([A-Z]+)'", text))
            for found in re.findall(r"__path = f?(['\"])(/.*?)\1$", text, re.MULTILINE):
                plain = re.sub(r"\{__path_parts\[.\w+.\]\}", SAMPLE, found[1])
                yield methods.pop() if len(methods) == 1 else "*", plain


def test_every_path_in_the_clients_texts_has_a_class_or_is_left_out_on_purpose() -> None:
    """By its method where that stands beside it: to read the others takes a parser, and a
    second."""
    dialect = OpenSearch(source(1, "opensearch"), CLOCK.monotonic)
    calls = {*_calls_in_texts()}
    assert len({path for _, path in calls}) > 500
    assert len([method for method, _ in calls if method]) > 500
    for method, path in sorted(calls):
        target = canonical(path)
        known = any(dialect.match(each, target) for each in ([method] if method else METHODS))
        assert known or LEFT_OUT.intersection(target.segments), (method, path)


_PATH_OR_METHOD = re.compile(
    r"""__path = f?["'](/.*)["']$|perform_request\((?:\s*#.*)?\s*["']([A-Z]+)["'],\s*__path""",
    re.MULTILINE,
)
_MADE_PATH = re.compile(
    r"""(?:perform_request\((?:\s*#.*)?\s*["']([A-Z]+)["'],\s*)?_make_path\(([^()]*)\)"""
)
_WHOLE_PATH = re.compile(
    r"""perform_request\((?:\s*#.*)?\s*["']([A-Z]+)["'],\s*["'](/[^"']*)["']"""
)


def _calls_in_texts() -> Iterator[tuple[str, str]]:
    """Method, "" if it is not known, and path."""
    elastic = Path(elasticsearch.__file__).parent / "_sync" / "client"
    for file in elastic.glob("*.py"):
        for function in file.read_text().split("\n    def "):
            found = _PATH_OR_METHOD.findall(function)
            methods = {method for _, method in found} - {""}
            for path in (path for path, _ in found if path):
                plain = re.sub(r"\{__path_parts\[.\w+.\]\}", SAMPLE, path)
                # A later path is for all indices, which may be left out.
                yield methods.pop() if len(methods) == 1 else "", plain
    opensearch = Path(opensearchpy.__file__).parent
    for file in [*(opensearch / "client").glob("*.py"), *(opensearch / "plugins").glob("*.py")]:
        text = file.read_text()
        yield from _WHOLE_PATH.findall(text)
        for method, listed in _MADE_PATH.findall(text):
            parts = [each.strip() for each in listed.split(",") if each.strip()]
            named = (each[1:-1] if each[0] in "\"'" else SAMPLE for each in parts)
            yield method, "/" + "/".join(named)


@pytest.mark.deep(
    stands_in="test_every_path_in_the_clients_texts_has_a_class_or_is_left_out_on_purpose"
)
def test_every_call_of_the_clients_has_a_class_or_is_left_out_on_purpose() -> None:
    dialect = OpenSearch(source(1, "opensearch"), CLOCK.monotonic)
    calls = {*_opensearch_calls(), *_elasticsearch_calls()}
    assert len(calls) > 800
    unknown: dict[str, set[str]] = {}
    for method, path in sorted(calls):
        target = canonical(path)
        tried = METHODS if method == "*" else (method,)
        if not any(dialect.match(each, target) for each in tried):
            parts = [part for part in target.segments if part != SAMPLE]
            left_out = LEFT_OUT.intersection(parts)
            if not left_out:
                unknown.setdefault(path, set()).add(method)
    assert unknown == {}, "\n".join(f"{k} {v}" for k, v in unknown.items())


def test_an_excluded_call_has_no_route() -> None:
    literal = {part for route in ROUTES for part in route.pattern.split("/")}
    # These three are about named indices.
    kept = {"_stats", "_segments", "_recovery"}
    assert not (LEFT_OUT - kept) & literal


def test_a_route_that_reads_finds_its_sources() -> None:
    for route in ROUTES:
        if route.route_class in (RouteClass.RETRIEVE, RouteClass.WRITE, RouteClass.METADATA):
            assert route.find_sources is not None or route.compose_response is not None, (
                route.pattern
            )
        if route.route_class is RouteClass.OPEN and route.find_sources is None:
            assert route.pattern == "/"


def test_a_literal_matches_before_a_parameter() -> None:
    dialect = OpenSearch(source(1, "opensearch"), CLOCK.monotonic)
    for route in ROUTES:
        for method in route.methods.split():
            path = re.sub(r"\{\w+\}", SAMPLE, route.pattern)
            found = dialect.match(method, canonical(path))
            assert found is not None, (method, path)
            assert found.route.pattern == route.pattern, (method, path, found.route.pattern)
