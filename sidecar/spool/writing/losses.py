"""Keeps what was lost and must be declared in the log, until a `gap` record for it is on disk.

There are two kinds. An instance that ended may have records after its end that can't be shipped.
And in mode `best_effort`, records that did not fit never got a number and are only counted.

A loss is declared at least once. If the process dies after the gap record is on disk and before the
ending is saved, the next start declares it again. Counts held in memory are lost in a crash: that
is the price of `best_effort`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from policies.ground.clock import Clock
from policies.ground.ids import uuid7
from policies.trail.record import Record, gap_record
from sidecar.spool.instance import Instance
from sidecar.spool.storage.layout import Ending


class Declaration(NamedTuple):
    """Gap records on their way to disk, and what they declare."""

    endings: list[tuple[Instance, Ending]]
    dropped: dict[str, int]
    records: list[Record]


class Losses:
    """`gaps` counts declarations on disk, `records` the records known to be lost."""

    def __init__(self, clock: Clock, random_bytes: Callable[[int], bytes]) -> None:
        self.gaps = 0
        self.records = 0
        self._now = clock.now
        self._random_bytes = random_bytes
        self._instances: list[Instance] = []
        self._dropped: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of gap records needed to declare all losses."""
        return len(self._instances) + len(self._dropped)

    def ended(self, instance: Instance, ending: Ending) -> None:
        """Note that the instance ended, or that it ended at an earlier record than was known."""
        # An ending that recovery found has not been counted yet, so all of its loss counts.
        former = None if instance.ending is ending else instance.ending
        self.records += (ending.lost or 0) - (0 if former is None else former.lost or 0)
        instance.ending = ending
        if instance not in self._instances:
            self._instances.append(instance)

    def dropped(self, reason: str) -> None:
        """Count a record that was answered but did not fit."""
        self.records += 1
        self._dropped[reason] = self._dropped.get(reason, 0) + 1

    def take(self) -> Declaration:
        """Take everything that is to be declared. Follow with `confirmed` or `failed`."""
        endings = [(each, each.ending) for each in self._instances if each.ending is not None]
        # Taken, not copied: what is lost from now on goes into the next declaration.
        dropped = self._dropped
        self._instances, self._dropped = [], {}
        records = [
            self._gap(ending.reason, instance.id, ending.first, ending.lost)
            for instance, ending in endings
        ]
        # A dropped record never had an instance or a number.
        records += [self._gap(reason, None, None, count) for reason, count in dropped.items()]
        return Declaration(endings, dropped, records)

    def confirmed(self, declaration: Declaration) -> None:
        """Note that the gap records are on disk."""
        self.gaps += len(declaration.records)
        for instance, ending in declaration.endings:
            # If more was lost since, the instance is in the list again and is declared again.
            if instance.ending is ending:
                instance.ending = replace(ending, declared=True)

    def failed(self, declaration: Declaration) -> None:
        """Note that the gap records are not on disk, so that the losses are declared again."""
        again = [instance for instance, _ in declaration.endings]
        self._instances = again + [each for each in self._instances if each not in again]
        for reason, count in declaration.dropped.items():
            self._dropped[reason] = self._dropped.get(reason, 0) + count

    def _gap(
        self, reason: str, instance: str | None, first: int | None, lost: int | None
    ) -> Record:
        record_id = uuid7(self._now(), self._random_bytes(10))
        return gap_record(reason, instance=instance, first=first, lost=lost, record_id=record_id)
