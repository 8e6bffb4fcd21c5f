"""One control API for all machines of a module: what they make has names of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.support.control_api import ControlApi, running_control_api
from tests.support.properties import few

Run = Callable[[type[RuleBasedStateMachine]], None]


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with running_control_api(tmp_path_factory.mktemp("machine")) as api:

        def runs(machine: type[RuleBasedStateMachine]) -> None:
            machine.api = api
            tried = settings(max_examples=few(25, at_least=4), stateful_step_count=25)
            run_state_machine_as_test(machine, settings=tried)
            assert api.verified()["valid"]

        yield runs


__all__ = ["ControlApi", "run"]
