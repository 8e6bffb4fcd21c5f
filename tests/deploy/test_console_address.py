"""The host name of the console of `sluice up`."""

import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from deploy.local.console_address import FILE, console_url
from deploy.local.settings import read


def made(folder: Path, **environ: str) -> str | None:
    return console_url(environ, folder, read({"data_dir": str(folder)}, {}).control_listen)


def test_the_name_is_random_kept_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    address = made(first)
    assert address is not None
    host = urlsplit(address).hostname or ""
    assert (len(host), host.partition(".")[2]) == (32 + len(".localhost"), "localhost")
    assert made(first) == address
    assert made(second) != address
    assert stat.S_IMODE((first / FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("kept", ["", "evil.example", "0123.localhost", "localhost"])
def test_a_damaged_file_is_replaced(tmp_path: Path, kept: str) -> None:
    (tmp_path / FILE).write_text(kept)
    address = made(tmp_path)
    assert address is not None
    assert urlsplit(address).hostname == (tmp_path / FILE).read_text().strip() != kept


@pytest.mark.parametrize("name", ["SLUICE_CONSOLE_URL", "SLUICE_TLS_CERTIFICATE"])
def test_an_operators_own_address_stays(tmp_path: Path, name: str) -> None:
    assert made(tmp_path, **{name: "x"}) is None
    assert not (tmp_path / FILE).exists()
