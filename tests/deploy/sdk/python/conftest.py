"""A sidecar with its control API for all tests of a module, and guards that ask it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluice_guard import Guard
from tests.support.stack import Stack, running_stack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack")) as started:
        yield started


@pytest.fixture
def guard(stack: Stack) -> Iterator[Guard]:
    with guard_of(stack) as made:
        yield made


def guard_of(stack: Stack) -> Guard:
    url = f"http://127.0.0.1:{stack.sidecar.port}"
    return Guard(url, stack.agent_key, stack.agent_id, stack.role, timeout=30)


def event_of(stack: Stack, event_id: str) -> dict[str, object]:
    """The audit trail's event."""
    stack.wait_shipped(event_id)
    (found,) = [each for each in stack.events() if each["event_id"] == event_id]
    return dict(found)
