"""Times in which a log recorded nothing are found alike in any ranges, and in a database."""

import pytest

from policies.trail.entry import StoredRow
from policies.trail.record import log_heartbeat_record
from policies.trail.verify import Verifier
from policies.trail.walk.gaps import MOST, SECOND, Silence, Silences, silence
from tests.policies.trail.walk.world import lines, walked
from tests.policies.world import LOG, START, Log, decided

MINUTE = 60 * SECOND
PAUSES = (0, 61, 62, 3, 600, 59, 60, 61, 0, 90)
"""Minutes before each entry. With what an hour and a minute allow, three are too long."""


def made() -> list[StoredRow]:
    """Heartbeats, which get the full check, among decisions, which the walk knows by their form."""
    log, at = Log(), START
    for number, minutes in enumerate(PAUSES):
        at += minutes * MINUTE
        beat = log_heartbeat_record(record_id=f"beat-{number}")
        log.direct(beat if number % 3 == 0 else decided(seed=number), at=at)
    return log.rows


ROWS = made()


@pytest.mark.parametrize("cuts", [(), (1, 2), (4, 5), range(len(PAUSES)), (9,)])
def test_each_silence_is_found_in_any_ranges(cuts: tuple[int, ...]) -> None:
    walk = walked(lines(ROWS), cuts)
    assert walk.broken is None
    assert walk.silences.count == 3
    assert [each.seq for each in walk.silences.longest()] == [2, 4, 9]
    assert [each.duration // MINUTE for each in walk.silences.longest()] == [62, 600, 90]


def test_the_walk_over_a_database_finds_the_same() -> None:
    verifier = Verifier(LOG)
    assert verifier.feed_all(ROWS)
    assert verifier.silences.longest() == walked(lines(ROWS)).silences.longest()


def test_an_invalid_entry_ends_no_silence() -> None:
    rows = [*ROWS[:4], ROWS[4]._replace(entry=ROWS[4].entry.replace(b'"v":1', b'"v":2')), *ROWS[5:]]
    walk = walked(lines(rows))
    assert walk.broken is not None
    assert [each.seq for each in walk.silences.longest()] == [2]


def test_the_longest_are_kept_in_bounded_memory() -> None:
    kept = Silences()
    for hour in range(2, 100):
        begin, end = "2026-01-01T00:00:00.000000Z", f"2026-01-{1 + hour // 24:02}T{hour % 24:02}"
        found = silence(hour, begin, f"{end}:00:00.000000Z")
        assert isinstance(found, Silence)
        kept.add([found])
    assert kept.count == 98
    assert [each.seq for each in kept.longest()] == list(range(100 - MOST, 100))
