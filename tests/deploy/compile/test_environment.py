"""What is compiled compiles beside fewer libraries than a checkout has.

The images' build (`deploy/images/Dockerfile`) has the distributions of the extras `images` and
`compile` alone, and an isolated build of a wheel only the latter. A base class or a type of any
other library is unknown there. The whole wheel is compiled by
`tests/deploy/package/test_compiled_wheel.py`.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.compile.compiler import CannotCompile, check_types, compile_modules, missing
from deploy.compile.modules import FILES
from tests.deploy.compile.test_modules import library_bases
from tests.deploy.package.distribution import ROOT

COUNTERS = "sidecar.metrics.metrics"
SUBCLASS = """
from prometheus_client.registry import Collector

class Counter(Collector):
    pass
"""
USE = """
from prometheus_client import CollectorRegistry, generate_latest
from sidecar.metrics import metrics

registry = CollectorRegistry()
made = metrics.Counter("made", "How many", ("kind",), registry=registry)
made.add("one")
metrics.Durations("took", "How long", [0.1], registry=registry).observe(0.05)
metrics.Observations(registry).gauge("depth", "How deep", lambda: 3)
print(metrics.__file__)
print(generate_latest(registry).decode())
"""


@pytest.mark.deep(
    stands_in="test_a_base_class_of_a_library_is_refused_even_where_the_library_is_installed"
)
def test_the_types_are_valid_without_any_library() -> None:
    check_types()


def test_a_base_class_of_a_library_is_refused_even_where_the_library_is_installed(
    tmp_path: Path,
) -> None:
    source = tmp_path / "counter.py"
    source.write_text(SUBCLASS)
    with pytest.raises(CannotCompile, match='cannot subclass "Collector"') as refused:
        check_types([str(source)])
    # That the library has no types here is no error.
    assert "Found 1 error in 1 file" in str(refused.value)
    for file in FILES:
        assert [*library_bases(ast.parse((ROOT / file).read_text("utf-8")))] == [], file


def test_compiled_code_works_with_the_library_in_python(
    capsys: pytest.CaptureFixture[str],
) -> None:
    exec(USE, {})
    shows_all_three(capsys.readouterr().out)


@pytest.mark.deep(stands_in="test_compiled_code_works_with_the_library_in_python")
@pytest.mark.skipif(missing() is not None, reason=f"nothing can be compiled here: {missing()}")
def test_a_compiled_module_works_with_the_library_that_it_was_compiled_without(
    tmp_path: Path,
) -> None:
    compile_modules(tmp_path, COUNTERS)
    for package in ("sidecar", "sidecar/metrics"):
        shutil.copy(ROOT / package / "__init__.py", tmp_path / package)
    command = [sys.executable, "-c", USE]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    file, _, metrics = shown.partition("\n")
    assert file.startswith(str(tmp_path))
    assert file.endswith(".so")
    shows_all_three(metrics)


def shows_all_three(metrics: str) -> None:
    assert 'made_total{kind="one"} 1.0' in metrics
    assert 'took_bucket{le="0.1"} 1.0' in metrics
    assert "depth 3.0" in metrics
