"""`SLUICE_EXPORT_URLS`: what is a target, and what ends the start with a complaint that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from control_api.log.formats import FORMATS as ALL_FORMATS
from control_api.security.export_targets import FORMATS, ExportTarget, parse_targets
from control_api.settings import read
from policies.ground.settings import SettingsError


def test_the_formats_are_those_of_an_export() -> None:
    assert set(FORMATS) == set(ALL_FORMATS) - {"csv"}


@pytest.mark.parametrize(
    ("text", "host", "port", "path"),
    [
        ("otlp+http://collector:4318", "collector", 4318, "/v1/logs"),
        ("otlp+http://collector", "collector", 80, "/v1/logs"),
        ("otlp+https://Collector.example.com", "collector.example.com", 443, "/v1/logs"),
        ("otlp+https://c/otlp/", "c", 443, "/otlp/v1/logs"),
        ("otlp+https://c/otlp/v1/logs", "c", 443, "/otlp/v1/logs"),
        ("otlp+http://[::1]:4318?compression=none", "::1", 4318, "/v1/logs"),
        ("syslog+tcp://10.0.0.1:601?format=ecs", "10.0.0.1", 601, ""),
        ("syslog+tls://siem?format=ocsf", "siem", 6514, ""),
        ("syslog+tls://siem:7000/?format=cloudevents", "siem", 7000, ""),
        ("file:///tmp/decisions%2C1?format=otel", "", None, "/tmp/decisions,1"),
    ],
)
def test_a_valid_url_is_parsed_as_a_target(
    text: str, host: str, port: int | None, path: str
) -> None:
    found = ExportTarget.parse(text)
    assert (found.host, found.port, found.path) == (host, port, path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty"),
        ("http://collector:4318", "must begin with otlp+http://"),
        ("otlp://collector", "must begin with"),
        ("collector:4318", "must begin with"),
        ("otlp+http://user:hunter2@collector", "headers_file"),
        ("syslog+tls://hunter2@siem?format=ecs", "must not hold a user or password"),
        ("otlp+http://", "must name a host"),
        ("otlp+http://a b", "another character that a URL must encode"),
        ("otlp+http://c:99999", "a port that is not one"),
        ("otlp+http://c:0", "has port 0"),
        ("otlp+http://c:x", "a port that is not one"),
        ("otlp+http://c#part", "fragment"),
        ("otlp+http://c?format=ocsf", "`format`"),
        ("otlp+http://c?ca=/etc/ssl", "`ca`"),
        ("otlp+http://c?token=hunter2", "`token`"),
        ("otlp+http://c?compression=br", "`compression` is"),
        ("otlp+http://c?compression=gzip&compression=none", "twice"),
        ("otlp+http://c?compression", "not `?name=value"),
        ("otlp+http://c?headers_file=/nowhere/hunter2", "`headers_file` names a file"),
        ("otlp+https://c?certificate=/dev/null", "only useful together"),
        ("syslog+tcp://siem:601", "needs `?format=`"),
        ("syslog+tcp://siem?format=ecs", "must name a port"),
        ("syslog+tcp://siem:601?format=csv", "needs `?format=`"),
        ("syslog+tcp://siem:601?format=ecs&ca=/dev/null", "`ca`"),
        ("syslog+tcp://siem:601?format=ecs&close_notify=optional", "`close_notify`"),
        ("syslog+tls://siem?format=ecs&close_notify=0", "`close_notify` is"),
        ("syslog+tcp://siem:601/path?format=ecs", "must not have a path"),
        ("syslog+udp://siem:514?format=ecs", "must begin with"),
        ("file://tmp/x?format=ecs", "three slashes"),
        ("file:///tmp?format=ecs", "is not a file"),
        ("file:///nowhere/at/all?format=ecs", "make it first"),
        ("file:///tmp/%00?format=ecs", "its whole path"),
        ("file:///tmp/%FF?format=ecs", "not UTF-8"),
        ("file:///dev/null?format=ecs", "is not a file"),
    ],
)
def test_an_unusable_url_is_refused_with_a_message(text: str, complaint: str) -> None:
    good = "otlp+http://good"
    with pytest.raises(SettingsError) as refused:
        read({"SLUICE_EXPORT_URLS": f"{good},{text}"})
    told = str(refused.value)
    assert "SLUICE_EXPORT_URLS: URL 2: " in told
    assert complaint in told
    assert "hunter2" not in told


def test_every_fault_is_reported(tmp_path: Path) -> None:
    headers = tmp_path / "headers"
    headers.write_text("Authorization hunter2")
    with pytest.raises(ValueError, match=r"URL 1: .*URL 3: is listed twice.*URL 4: ") as refused:
        parse_targets(
            f"otlp+https://a?headers_file={headers},otlp+http://c,"
            "otlp+http://C:80/v1/logs?compression=none,http://d"
        )
    assert "hunter2" not in str(refused.value)


def test_too_many_are_refused() -> None:
    with pytest.raises(ValueError, match="lists 17 URLs"):
        parse_targets(",".join(f"otlp+http://c{number}" for number in range(17)))


def test_a_target_is_identified_by_its_address_and_format(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.touch()
    one = ExportTarget.parse("syslog+tls://siem?format=ecs")
    assert ExportTarget.parse(f"syslog+tls://SIEM:6514?ca={ca}&format=ecs").identity == one.identity
    for other in (
        "syslog+tls://siem?format=ocsf",
        "syslog+tls://siem:6515?format=ecs",
        "syslog+tcp://siem:6514?format=ecs",
        "otlp+https://siem:6514",
    ):
        assert ExportTarget.parse(other).identity != one.identity
    paths = {ExportTarget.parse(f"otlp+https://c/{path}").identity for path in ("a", "b", "")}
    assert len(paths) == 3


def test_a_log_line_shows_no_path_and_no_option() -> None:
    assert ExportTarget.parse("otlp+https://c/secret/path").shown == "otlp+https://c:443"
    assert ExportTarget.parse("syslog+tls://[::1]?format=ecs").shown == "syslog+tls://[::1]:6514"
