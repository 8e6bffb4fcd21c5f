"""Where `sluice up` finds the host name of the console."""

from pathlib import Path

from control_api.security import console_settings
from control_api.security.console_settings import ConsoleAddress
from deploy.local.listening import FILE, console_url
from deploy.local.settings import read
from policies.ground.addresses import ListenAddress


def shown(folder: Path, **environ: str) -> str | None:
    return console_url(environ, folder, read({"data_dir": str(folder)}, {}).control_listen)


def test_the_shown_address_is_the_one_that_the_control_api_has_made(tmp_path: Path) -> None:
    assert FILE == console_settings.FILE
    assert shown(tmp_path) is None  # the console is switched off
    made = ConsoleAddress.own(
        tmp_path, ListenAddress("127.0.0.1", 8700), lambda count: b"x" * count
    )
    assert shown(tmp_path) == made.url == f"http://{made.host}:8700"


def test_no_address_is_shown_if_the_operator_has_set_one(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("0123.localhost\n")
    assert shown(tmp_path, SLUICE_CONSOLE_URL="x") is None
