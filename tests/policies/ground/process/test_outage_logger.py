"""One line per outage, whatever its attempts say."""

import asyncio
import errno
import logging
from pathlib import Path

import pytest

from policies.ground.errors import worded
from policies.ground.process.outage_logger import (
    PAUSE_SECONDS,
    REPEAT_SECONDS,
    OutageLogger,
    RepeatingOutageLogger,
)


class Outage(RepeatingOutageLogger):
    """A logger at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        log = logging.getLogger(__name__)
        super().__init__(log, "shipping", "records are shipped again", lambda: self.now)


def test_an_outage_is_logged_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Outage()
    outage.recovered()
    for _ in range(3):
        outage.failing("refused")
    during = outage.problem
    outage.recovered()
    outage.recovered()
    assert (during, outage.problem) == ("refused", None)
    assert caplog.messages == ["shipping: refused", "recovered: records are shipped again"]


def test_alternating_causes_are_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    for _ in range(3):
        outage.failing("refused")
        outage.failing("timed out")
    assert caplog.messages == ["shipping: refused"]
    outage.now += PAUSE_SECONDS
    outage.failing("refused")
    outage.failing("timed out")
    assert caplog.messages == ["shipping: refused", "shipping: timed out"]


def test_a_long_outage_is_logged_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    outage.failing("refused")
    outage.now += REPEAT_SECONDS - 1
    outage.failing("refused")
    assert len(caplog.messages) == 1
    outage.now += 1
    outage.failing("refused")
    assert caplog.messages == ["shipping: refused"] * 2


def test_a_flapping_outage_is_logged_with_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Outage()
    for _ in range(5):
        outage.failing("refused")
        outage.recovered()
    assert caplog.messages == ["shipping: refused", "recovered: records are shipped again"]
    outage.now += PAUSE_SECONDS
    outage.failing("refused")
    assert caplog.messages[-1] == "shipping: refused"


async def test_an_outage_with_many_causes_can_be_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    outage = OutageLogger(logging.getLogger(__name__), "shipping", "records are shipped again")
    for cause in (OSError("refused"), OSError("timed out")):
        outage.failing(cause)
        now += REPEAT_SECONDS
    assert (outage.ongoing, outage.problem) == (True, "timed out")
    outage.recovered()
    told = ["shipping: refused", "recovered: records are shipped again"]
    assert (outage.ongoing, caplog.messages) == (False, told)
    outage.failing("refused")
    outage.recovered()
    outage.failing("refused again, within the pause")
    assert caplog.messages == told * 2


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "ENOSPC (no space left on device)"),
        (OSError(errno.EROFS, ""), "EROFS (read-only file system)"),
        (IsADirectoryError(errno.EISDIR, "Is a directory"), "EISDIR (is a directory)"),
        (PermissionError(errno.EACCES, "Permission denied"), "EACCES (permission denied)"),
        (OSError("the disk takes no more bytes"), "the disk takes no more bytes"),
        (OSError(), "OSError"),
    ],
)
def test_an_error_of_a_disk_is_worded_by_its_name_and_with_its_place(
    error: OSError, words: str
) -> None:
    assert worded(error) == words
    assert worded(error, Path("/spool")) == f"{words} at `/spool`"
