"""Holds the objects that the operations on policies work with, built once at startup."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import Counter

from control_api.log.append import Changes
from control_api.policy.analyses.process import Analyses
from control_api.policy.impact_loop import ImpactLoop
from control_api.settings import Settings
from control_api.store.store import Store
from policies.ground.clock import Clock


@dataclass(frozen=True, slots=True)
class RefusedFiles:
    """The reasons why a tenant's policy files were refused when this process last read them. `at`
    is the time of that reading (microseconds since 1970)."""

    at: int
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Policies:
    """The objects that operations on policies work with. `entropy(n)` returns n random bytes;
    `directory` holds the policy files, or is None if there are none; `settings` bind every tenant;
    `reloads` counts reloads by outcome."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    changes: Changes
    settings: Settings
    directory: Path | None
    analyses: Analyses
    impact: ImpactLoop
    reloads: Counter
    # By tenant. Every process reads the files, so each knows by itself.
    refused_files: dict[str, RefusedFiles] = field(default_factory=dict)
