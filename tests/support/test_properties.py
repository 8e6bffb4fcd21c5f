"""One commit gives one result: what the gate draws is fixed, and a drawn seed can be repeated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import properties

pytest_plugins = ["pytester"]

CONFTEST = """
from tests.support import properties

properties.register()

def pytest_addoption(parser):
    parser.addoption("--deep", action="store_true")

import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    properties.configure(config)
"""
DRAWN = """
from hypothesis import given, settings, strategies
from tests.support import properties

def test_chance():
    print("drew", properties.chance("a").random(), settings.get_current_profile_name())

@given(strategies.integers())
def test_property(number):
    print("drew", number)
"""


Run = Callable[..., list[str]]


@pytest.fixture
def draw(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run two tests in a pytest of its own, and return the values that they drew."""
    monkeypatch.delenv(properties.SEED, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(properties.__file__).parents[2]))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(DRAWN)

    def run(*options: str) -> list[str]:
        result = pytester.runpytest_subprocess("-s", "-q", "-p", "no:cacheprovider", *options)
        result.assert_outcomes(passed=2)
        return [line for line in result.outlines if "drew" in line]

    return run


@pytest.mark.deep(stands_in="test_every_profile_but_the_usual_one_draws")
def test_two_usual_runs_draw_the_same(draw: Run) -> None:
    first = draw()
    assert first == draw()
    assert "usual" in first[0]


@pytest.mark.deep(stands_in="test_every_profile_but_the_usual_one_draws")
def test_two_deep_runs_draw_differently(draw: Run) -> None:
    first = draw("--deep")
    assert first != draw("--deep")
    assert "deep" in first[0]


@pytest.mark.deep(stands_in="test_each_name_draws_its_own")
def test_a_seed_in_the_environment_repeats_a_run(
    draw: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(properties.SEED, "7")
    assert draw() == draw("--deep")


def test_each_name_draws_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(properties.SEED, raising=False)
    drawn = properties.chance("a").random()
    assert drawn == properties.chance("a").random() != properties.chance("b").random()
    monkeypatch.setenv(properties.SEED, "1")
    assert drawn != properties.chance("a").random()


def test_every_profile_but_the_usual_one_draws() -> None:
    names = (properties.USUAL, properties.DEEP, properties.MANY, properties.BYPASS)
    fixed = [name for name in names if settings.get_profile(name).derandomize]
    assert fixed == [properties.USUAL]
