"""How a `sluice policy` command finds a service and its key, and what it makes of answers."""

import argparse
import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.commands.policy.service import add_service, connect, names_service
from policies.ground.process.api_client import RequestRefused, ServiceUnusable, UnusableArguments
from tests.support.control_api import ControlApi

Options = Callable[..., argparse.Namespace]


@pytest.fixture
def options() -> Options:
    def made(*arguments: str, **environ: str) -> argparse.Namespace:
        parser = argparse.ArgumentParser()
        add_service(parser)
        parser.set_defaults(environ=environ)
        return parser.parse_args(arguments)

    return made


@pytest.fixture
def key_file(api: ControlApi, tmp_path: Path) -> str:
    path = tmp_path / "key"
    path.write_text(f"{api.new_key('read')}\n")
    path.chmod(0o600)
    return str(path)


def test_arguments_and_variables_name_a_service(
    api: ControlApi, options: Options, key_file: str
) -> None:
    url = f"http://127.0.0.1:{api.port}"
    first_start = api.directory / "data" / "first-start.json"
    ways = (
        options("--url", url, "--key-file", key_file),
        options(SLUICE_URL=url, SLUICE_KEY_FILE=key_file),
        options("--key-file", key_file, SLUICE_URL=f"{url}/", SLUICE_KEY_FILE="/none"),
        options(SLUICE_URL=url, SLUICE_API_KEY=api.admin_key),
        options("--url", url, "--key-file", str(first_start)),
    )
    asked = {"agent_role": "support", "industry": None}
    for each in ways:
        assert names_service(each)
        rows = connect(each).request("GET", "/v1/policies", asked).body
        assert [row["name"] for row in rows] == ["support-reads"]
    assert not names_service(options("--key-file", key_file))


def test_a_refusal_is_shown_with_its_details(
    api: ControlApi, options: Options, key_file: str
) -> None:
    service = connect(options("--url", f"http://127.0.0.1:{api.port}", "--key-file", key_file))
    with pytest.raises(RequestRefused, match=r"^403 Forbidden: ") as refused:
        service.request("POST", "/v1/policies", body={})
    assert refused.value.status == 403
    sent = f"the key in `{key_file}` was sent; reading needs"
    assert sent in str(refused.value)
    with pytest.raises(
        RequestRefused, match=r"^422 .*\n  limit: .*\n  request: GET /v1/policies\n"
    ):
        service.request("GET", "/v1/policies", {"limit": "0"})
    # A body that is refused before all of it was sent.
    with pytest.raises(RequestRefused, match=r"^413 "):
        service.request("POST", "/v1/context/simulate", body={"user_id": "x" * 30_000_000})


def test_an_unusable_service_is_reported_without_the_key(
    options: Options, tmp_path: Path, key_file: str
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("slc_secret\r\nX-Other: 1")
    wrong.chmod(0o600)
    other = tmp_path / "other.json"
    other.write_text("{}")
    other.chmod(0o600)
    cases = (
        (options("--url", "http://127.0.0.1:1"), "--key-file or SLUICE_KEY_FILE"),
        (options("--key-file", str(wrong)), "does not contain a key"),
        (options("--key-file", str(other)), "without an `admin_key`"),
        (options("--key-file", str(tmp_path / "none")), "No such file"),
        (options(SLUICE_API_KEY="slc_secret\n2"), "SLUICE_API_KEY does not contain a key"),
        (options("--url", "ftp://a", "--key-file", key_file), "not an address"),
        (options("--url", "http://u:pass@a", "--key-file", key_file), "not an address"),
        (options("--ca", "x", "--key-file", key_file), "--ca applies only to https://"),
    )
    for given, message in cases:
        with pytest.raises(UnusableArguments, match=message) as told:
            connect(given)
        assert "slc_secret" not in str(told.value)
        assert "pass" not in str(told.value)
    Path(key_file).chmod(0o640)
    with pytest.raises(UnusableArguments, match="chmod 600"):
        connect(options("--key-file", key_file))


def test_an_unencrypted_address_elsewhere_causes_a_warning(
    options: Options, key_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    connect(options("--url", "http://192.0.2.1", "--key-file", key_file))
    assert "unencrypted" in capsys.readouterr().err
    connect(options("--key-file", key_file))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, b"<html>", "not JSON"),
        (
            502,
            b"<html>\x1b[31m</html>",
            r"^502 Bad Gateway: the response is not from a control API: <html>\\x1b\[31m</html>\n",
        ),
        (302, b"", r"^302 Found: the response is not from a control API\n"),
    ],
)
def test_an_answer_of_another_program_is_reported(
    options: Options, key_file: str, status: int, body: bytes, message: str
) -> None:
    with _answering(status, body) as url:
        service = connect(options("--url", url, "--key-file", key_file))
        with pytest.raises(ServiceUnusable, match=message):
            service.request("GET", "/v1/policies")
    with pytest.raises(ServiceUnusable, match=f"no response from `{url}`: "):
        service.request("GET", "/v1/policies")


@contextmanager
def _answering(status: int, body: bytes) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Location", "http://192.0.2.1/")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
