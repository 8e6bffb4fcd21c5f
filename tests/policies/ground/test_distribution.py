"""The digest of the installed wheel, in each form that an installer's note may have."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator

import pytest

from policies.ground.distribution import wheel_digest

DIGEST = "0123456789abcdef" * 4


def noted(**more: object) -> str:
    return json.dumps({"url": "file:///a.whl", **more})


@pytest.fixture(autouse=True)
def unread() -> Iterator[None]:
    """Nothing that another test read is kept, and nothing of these tests."""
    wheel_digest.cache_clear()
    yield
    wheel_digest.cache_clear()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (noted(archive_info={"hashes": {"sha256": DIGEST}}), DIGEST),
        (None, "not known"),
        (noted(dir_info={"editable": True}), "not known"),
        (noted(archive_info={}), "not known"),
        (noted(archive_info={"hashes": {"sha256": "<b>no digest</b>"}}), "not known"),
        (noted(archive_info={"hashes": {"sha256": 5}}), "not known"),
        ("[]", "not known"),
        ("not JSON", "not known"),
    ],
)
def test_the_digest_is_the_one_that_the_installer_recorded_or_unknown(
    text: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            return text if name == "direct_url.json" else "something else"

    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Installed())
    assert wheel_digest() == expected


def test_the_digest_of_a_missing_distribution_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    assert wheel_digest() == "not known"
