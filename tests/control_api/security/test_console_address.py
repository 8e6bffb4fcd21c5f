"""The name that the console makes for itself."""

import stat
from pathlib import Path

import pytest

from control_api.security.console_settings import FILE, ConsoleAddress
from policies.ground.addresses import ListenAddress
from policies.ground.process.secret_file import UnusableFile

LISTEN = ListenAddress("127.0.0.1", 8700)


def made(folder: Path, byte: bytes) -> ConsoleAddress:
    return ConsoleAddress.own(folder, LISTEN, lambda count: byte * count)


def test_the_name_is_random_kept_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    host = "ab" * 16 + ".localhost"
    assert made(tmp_path, b"\xab") == ConsoleAddress(None, host, f"http://{host}:8700")
    assert made(tmp_path, b"\xcd").host == host
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("kept", ["", "evil.example", "0123.localhost", "localhost"])
def test_a_damaged_file_is_replaced(tmp_path: Path, kept: str) -> None:
    (tmp_path / FILE).touch(mode=0o600)
    (tmp_path / FILE).write_text(kept)
    assert made(tmp_path, b"\xab").host == "ab" * 16 + ".localhost"
    assert made(tmp_path, b"\xcd").host == "ab" * 16 + ".localhost"


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).touch(mode=0o600)
    (tmp_path / FILE).chmod(0o644)
    with pytest.raises(UnusableFile):
        made(tmp_path, b"\xab")


def test_an_address_of_the_settings_is_used_unchanged() -> None:
    url = "https://sluice.example:8443"
    assert ConsoleAddress.given(url) == ConsoleAddress(url, "sluice.example", url)
