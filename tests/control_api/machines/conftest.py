"""One control API for all machines of a module: what they make has names of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.control_api.centre import Centre, running

Run = Callable[[type[RuleBasedStateMachine]], None]
RUNS = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with running(tmp_path_factory.mktemp("machine")) as centre:

        def runs(machine: type[RuleBasedStateMachine]) -> None:
            machine.centre = centre
            run_state_machine_as_test(machine, settings=RUNS)
            assert centre.verified()["valid"]

        yield runs


__all__ = ["Centre", "run"]
