"""The metric shows the certificate that expires first, and nothing that can't be read."""

from __future__ import annotations

import time
from pathlib import Path

from cryptography.x509 import load_pem_x509_certificates

from sidecar.http.tls_contexts import certificate_seconds_left
from tests.support.certificates import authority

DAY = 86400


def now_at(seconds: float) -> int:
    return int(seconds * 1e6)


def test_the_certificate_that_expires_first_counts(tmp_path: Path) -> None:
    pair = authority().issue("one.test")
    (end,) = (
        each.not_valid_after_utc.timestamp()
        for each in load_pem_x509_certificates(pair.certificate.read_bytes())
    )
    chain = tmp_path / "chain.pem"
    chain.write_bytes(pair.certificate.read_bytes() + authority().path.read_bytes())
    files = [pair.certificate, chain]
    assert certificate_seconds_left(files, now_at(end - 100)) == 100
    assert certificate_seconds_left(files, now_at(end + DAY)) == -DAY


def test_an_unreadable_certificate_has_no_metric(tmp_path: Path) -> None:
    torn = tmp_path / "torn.pem"
    torn.write_text("-----BEGIN CERTIFICATE-----\nMIIB")
    assert certificate_seconds_left([torn, tmp_path / "absent.pem"], now_at(time.time())) is None
    assert certificate_seconds_left([], now_at(time.time())) is None
