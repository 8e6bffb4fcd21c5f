"""Keys, terminals and connections: what a command must never do."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.commands.client.output import Output, as_json, cell, safe, wide
from tests.deploy.commands.client.conftest import Operator, environ_of, evaluate
from tests.support.stack import Stack

SLUICE = [sys.executable, "-m", "deploy.command"]


def test_a_key_file_that_others_may_read_is_refused(
    operator: Operator, stack: Stack, key_file: Callable[[str], Path]
) -> None:
    path = key_file(stack.admin_key)
    for mode in (0o640, 0o604, 0o660):
        path.chmod(mode)
        said = operator("agents", "list", "--key-file", str(path))
        assert said.code == 2
        assert f"mode {mode:04o}" in said.err
        assert f"chmod 600 {path}" in said.err
    path.chmod(0o600)
    operator.done("agents", "list", "--key-file", str(path))


def test_the_order_in_which_a_key_is_searched(
    operator: Operator, stack: Stack, key_file: Callable[[str], Path]
) -> None:
    path = str(key_file(stack.admin_key))
    none = {"SLUICE_KEY_FILE": ""}
    missing = operator("agents", "list", **none)
    assert missing.code == 1
    assert "401" in missing.err
    assert "--key-file or SLUICE_KEY_FILE" in missing.err
    assert operator("agents", "list", **none, SLUICE_API_KEY=stack.admin_key).code == 0
    # A file precedes a key in the environment, and an option precedes both.
    assert operator("agents", "list", SLUICE_KEY_FILE=path, SLUICE_API_KEY="wrong").code == 0
    assert operator("agents", "list", "--key-file", path, SLUICE_KEY_FILE="/none").code == 0


@pytest.mark.parametrize("text", ["", "a key\r\nX-Other: 1", "{}", "clé", "k" * 5000])
def test_a_key_file_without_a_key_is_refused_and_not_shown(
    operator: Operator, key_file: Callable[[str], Path], text: str
) -> None:
    said = operator("agents", "list", "--key-file", str(key_file(text)))
    assert said.code == 2
    assert not text or text not in said.err


def test_a_wrong_address_is_reported_without_its_password(operator: Operator) -> None:
    for url in (
        "127.0.0.1:8700",
        "ftp://a",
        "http://u:secret@host",
        "http://h:99999",
        "http://h?q",
    ):
        said = operator("agents", "list", "--url", url)
        assert said.code == 2
        assert "secret" not in said.err


def test_an_unreachable_control_api_is_one_line(operator: Operator) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        said = operator("agents", "list", "--url", url)
    assert said.code == 1
    assert said.err == f"sluice: no response from `{url}`: Connection refused\n"


def test_a_key_over_plain_http_to_another_host_is_a_warning(operator: Operator) -> None:
    said = operator("agents", "list", "--url", "http://localhost.invalid:1")
    assert said.code == 1
    assert "sending the key unencrypted to `http://localhost.invalid:1`" in said.err
    assert "unencrypted" not in operator.done("agents", "list").err


def test_control_characters_from_the_server_do_not_reach_the_terminal(
    operator: Operator, stack: Stack
) -> None:
    evil = "a\x1b[2J\x9b31m\u202e\n\x07b\x7f"
    body = {"agent_role": "support", "agent_id": "agt_evil", "display_name": evil}
    stack.admin("POST", "/v1/agents", body)
    table = operator.done("agents", "list").out
    shown = operator.done("agents", "show", "agt_evil").out
    for out in (table, shown):
        assert r"a\x1b[2J\x9b31m\u202e\n\x07b\x7f" in out
        assert all(char.isprintable() for line in out.split("\n") for char in line)
    raw = operator.done("agents", "list", "--json")
    assert raw.out.isascii()
    assert "\x7f" not in raw.out
    assert raw.json[0]["display_name"] == evil


def test_cells_are_safe_and_aligned() -> None:
    assert safe("é漢 ok") == "é漢 ok"
    assert cell(None) == cell([]) == cell("") == "-"
    assert (cell(True), cell(0), cell(["a", "b"])) == ("yes", "0", "a, b")
    assert cell({"a": "\x1b"}) == r'{"a": "\u001b"}'
    assert (wide("漢"), wide("é"), wide("e\u0301")) == (2, 1, 1)
    assert as_json("\x7f\u2028") == '"\\u007f\\u2028"'


@pytest.mark.parametrize(
    ("terminal", "environ", "coloured"),
    [
        (True, {}, True),
        (True, {"NO_COLOR": ""}, True),
        (True, {"NO_COLOR": "1"}, False),
        (False, {}, False),
    ],
)
def test_colours_are_printed_only_to_a_terminal_that_wants_them(
    terminal: bool, environ: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.StringIO()
    monkeypatch.setattr(file, "isatty", lambda: terminal)
    monkeypatch.setattr("sys.stdout", file)
    Output(as_json=False, environ=environ).rows(
        [[{"id": "e", "decision": "DENY"}]], [("ID", "id"), ("DECISION", "decision")]
    )
    assert ("\x1b[31mDENY\x1b[0m" in file.getvalue()) is coloured
    assert ("\x1b" in file.getvalue()) is coloured


@pytest.mark.deep(stands_in="test_colours_are_printed_only_to_a_terminal_that_wants_them")
def test_colours_of_a_command_are_printed_only_to_terminals(
    operator: Operator, stack: Stack
) -> None:
    evaluate(stack, source_id="payroll")
    words = [*SLUICE, "events", "--limit", "1"]
    piped = subprocess.run(
        words, env=environ_of(operator), capture_output=True, timeout=60, check=True
    )
    assert b"\x1b" not in piped.stdout
    for more, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        told = on_a_terminal(words, environ_of(operator, **more))
        assert (b"\x1b[31mDENY\x1b[0m" in told) is coloured
        assert (b"\x1b" in told) is coloured


def on_a_terminal(words: list[str], environ: dict[str, str]) -> bytes:
    import os
    import pty

    ours, theirs = pty.openpty()
    with subprocess.Popen(words, env=environ, stdout=theirs, stdin=theirs) as process:
        os.close(theirs)
        told = b""
        try:
            while part := os.read(ours, 65536):
                told += part
        except OSError:  # EIO: the other side is closed
            pass
        finally:
            os.close(ours)
        assert process.wait(60) == 0
    return told


def test_a_closed_pipe_ends_a_command_quietly(operator: Operator, stack: Stack) -> None:
    for _ in range(3):
        evaluate(stack)
    command = " ".join(["exec 3>&1;", *SLUICE, "events --all 2>&1 >&3 | cat >&2"])
    answer = subprocess.run(
        ["bash", "-c", f"({command}) | true"],
        env=environ_of(operator),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"Traceback" not in answer.stderr
    assert b"Exception" not in answer.stderr


def test_a_redirect_is_not_followed(operator: Operator) -> None:
    """The key would go to an address that the operator did not name."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        command = [*SLUICE, "agents", "list", "--url", url]
        process = subprocess.Popen(
            command, env=environ_of(operator), stderr=subprocess.PIPE, text=True
        )
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(
                b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n"
            )
            _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.startswith("sluice: 302 Found: ")


def test_no_slow_library_is_loaded() -> None:
    code = (
        "import sys; from deploy.commands.client.client import run\n"
        "try: run('agents', ['--help'], {})\n"
        "except SystemExit: pass\n"
        "print([n for n in ('aiohttp', 'asyncio', 'yaml', 'urllib.request')"
        " if n in sys.modules], file=sys.stderr)"
    )
    answer = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PYTHONPATH": str(Path(__file__).resolve().parents[4])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.stderr.strip() == "[]"
