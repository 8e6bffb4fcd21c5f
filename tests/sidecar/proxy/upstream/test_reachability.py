"""A data source that can't be reached: the log says which, where and why; the agent only which."""

import socket
import ssl
from pathlib import Path

import orjson
import pytest

from sidecar.http.client.egress_guard import AddressRefused
from sidecar.proxy.upstream.client import cause
from tests.sidecar.proxy.raw_client import ask, get
from tests.support.proxy import sidecar, source
from tests.support.scripted_source import data_source


async def test_an_unreachable_source_is_one_line_and_its_return_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with data_source() as upstream:
        port = upstream.port
    async with sidecar(tmp_path) as made:
        proxy = made.proxy([source(port)])
        await proxy.start()
        try:
            answers = [await ask(proxy.port("kb"), get("/a")) for _ in range(3)]
            assert {each.status for each in answers} == {502}
            message = orjson.loads(answers[0].body)["message"]
            event = answers[0].fields["x-sluice-event-id"]
            assert message == f"the data source `kb` can't be reached (event {event})"
            assert str(port).encode() not in answers[0].raw
            async with data_source(port=port):
                for _ in range(2):
                    assert (await ask(proxy.port("kb"), get("/a"))).status == 200
        finally:
            await proxy.close(1)
    why = "ECONNREFUSED (connection refused)"
    assert [each for each in caplog.messages if "data source" in each] == [
        f"data source `kb` at `127.0.0.1:{port}` can't be reached: {why}",
        "recovered: data source `kb` answers again",
    ]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "the connection timed out"),
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "ECONNREFUSED (conn"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "its name is not found"),
        (socket.gaierror(socket.EAI_AGAIN, "Try again"), "its name can't be resolved: try again"),
        (AddressRefused("private"), "address refused: private"),
    ],
)
def test_the_cause_is_described_in_words(error: OSError, words: str) -> None:
    assert cause(error).startswith(words)


def test_an_untrusted_certificate_is_named_as_the_cause() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    assert cause(error) == "its certificate is not trusted: self-signed certificate"
    other = ssl.SSLError(1, "wrong version number")
    other.reason = "WRONG_VERSION_NUMBER"
    assert cause(other) == "TLS failed: wrong version number"
