"""Which of two alternatives the gate takes for a test."""

from __future__ import annotations

import itertools

import pytest

from tests.runner import tiers


def test_one_of_two_choices_is_taken_by_name_and_each_for_about_half(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiers, "_tier", [])
    chosen = [tiers.one_of(["a", "b"], f"test_{n}") for n in range(200)]
    assert chosen == [tiers.one_of(["a", "b"], f"test_{n}") for n in range(200)]
    counts = [len(list(each)) for _, each in itertools.groupby(sorted(chosen))]
    assert all(60 < count < 140 for count in counts)
    monkeypatch.setattr(tiers, "_tier", ["deep"])
    assert tiers.one_of(["a", "b"], "test_x") == ["a", "b"]
