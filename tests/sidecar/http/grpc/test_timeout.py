"""The time for which a client of gRPC waits."""

import pytest

from sidecar.http.grpc.timeout import timeout_seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"200m", 0.2),
        (b"5S", 5.0),
        (b"2M", 120.0),
        (b"99999999H", 99999999 * 3600.0),
        (b"500u", 0.0005),
        (b"0n", 0.0),
        (b"", None),
        (b"m", None),
        (b"5", None),
        (b"5s", None),
        (b"-5S", None),
        (b"1.5S", None),
        (b" 5S", None),
        (b"123456789S", None),
        ("\N{SUPERSCRIPT TWO}S".encode(), None),
    ],
)
def test_a_timeout_is_read_as_grpc_writes_it(value: bytes, seconds: float | None) -> None:
    found = timeout_seconds(value)
    assert found == (None if seconds is None else pytest.approx(seconds))
