"""What was lost and must be said in the log: gathered here until a `gap` record of it is on disk.

Two kinds. An instance that ended has records behind its end that can't be shipped. In mode
`best_effort`, records that found no place were never numbered, and are only counted.

A loss is declared at least once. If the process dies after the gap record is on disk and before
that is noted beside the instance, the next start declares it again. What was only counted in memory
is not known after a crash: that is what `best_effort` gives up.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from policies.ground.clock import Clock
from policies.ground.ids import uuid7
from policies.trail.record import Record, gap_record
from sidecar.spool.instance import Instance
from sidecar.spool.layout import Ending


class Declaration(NamedTuple):
    """Gap records on their way to the disk, and what they say."""

    endings: list[tuple[Instance, Ending]]
    dropped: dict[str, int]
    records: list[Record]


class Losses:
    """`gaps` counts declarations that are on disk, `records` what is known to be lost."""

    def __init__(self, clock: Clock, entropy: Callable[[int], bytes]) -> None:
        self.gaps = 0
        self.records = 0
        self._now = clock.now
        self._entropy = entropy
        self._instances: list[Instance] = []
        self._dropped: dict[str, int] = {}

    def __len__(self) -> int:
        """How many gap records it takes to declare them."""
        return len(self._instances) + len(self._dropped)

    def ended(self, instance: Instance, ending: Ending) -> None:
        """The instance ended so; or, if it had ended before, earlier than was known."""
        former = None if instance.ending is ending else instance.ending
        self.records += (ending.lost or 0) - (0 if former is None else former.lost or 0)
        instance.ending = ending
        if instance not in self._instances:
            self._instances.append(instance)

    def dropped(self, reason: str) -> None:
        """A record that was answered for found no place."""
        self.records += 1
        self._dropped[reason] = self._dropped.get(reason, 0) + 1

    def take(self) -> Declaration:
        """All that is to be declared. Followed by `kept` or `failed`."""
        endings = [(each, each.ending) for each in self._instances if each.ending is not None]
        dropped = self._dropped
        self._instances, self._dropped = [], {}
        records = [self._of_ending(instance, ending) for instance, ending in endings]
        records += [self._of_dropped(reason, count) for reason, count in dropped.items()]
        return Declaration(endings, dropped, records)

    def kept(self, declaration: Declaration) -> None:
        """The gap records are on disk."""
        self.gaps += len(declaration.records)
        for instance, ending in declaration.endings:
            # Where more was lost since, it stands in the list again, and is declared again.
            if instance.ending is ending:
                instance.ending = replace(ending, declared=True)

    def failed(self, declaration: Declaration) -> None:
        """They are not: to be declared again."""
        again = [instance for instance, _ in declaration.endings]
        self._instances = again + [each for each in self._instances if each not in again]
        for reason, count in declaration.dropped.items():
            self._dropped[reason] = self._dropped.get(reason, 0) + count

    def _of_ending(self, instance: Instance, ending: Ending) -> Record:
        return gap_record(
            ending.reason,
            instance=instance.id,
            first=ending.first,
            lost=ending.lost,
            record_id=self._id(),
        )

    def _of_dropped(self, reason: str, count: int) -> Record:
        return gap_record(reason, instance=None, first=None, lost=count, record_id=self._id())

    def _id(self) -> str:
        return uuid7(self._now(), self._entropy(10))
