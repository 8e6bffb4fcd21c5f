"""A database that takes no writes: one line names it and the cause, another that it is over."""

import sqlite3

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError

from control_api.store.sqlite import WriteOutage
from control_api.store.url import parse_url

URL = parse_url("sqlite+aiosqlite:////disk/sluice.db")


def raising(outage: WriteOutage, error: Exception) -> None:
    with pytest.raises(type(error)), outage:
        raise error


async def test_a_full_disk_is_logged_once_with_the_database_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = sqlite3.OperationalError("database or disk is full")
    driver.sqlite_errorcode = sqlite3.SQLITE_FULL
    full = OperationalError("", {}, driver)
    outage = WriteOutage(URL)
    with outage:
        pass
    # No fault of the database: an id exists already.
    raising(outage, IntegrityError("", {}, sqlite3.IntegrityError("unique")))
    assert caplog.messages == []
    for _ in range(3):
        raising(outage, full)
    for _ in range(2):
        with outage:
            pass
    raising(outage, full)  # too soon for another line
    assert caplog.messages == [
        "writes to the database fail: `/disk/sluice.db`: ENOSPC (database or disk is full)",
        "recovered: `/disk/sluice.db` takes writes again",
    ]
