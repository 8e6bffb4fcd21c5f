"""The configuration file, and its faults."""

from pathlib import Path

import pytest

from deploy.commands.witness.__main__ import EXAMPLE
from deploy.commands.witness.configuration import load
from policies.ground.settings import SettingsError
from tests.deploy.commands.witness.protocol_client import Log
from tests.deploy.commands.witness.running_witness import configure


def test_the_example_is_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(EXAMPLE)
    made = load(path)
    assert (made.name, made.key_file, made.logs) == (
        "witness.example.com/sluice",
        tmp_path / "witness.key",
        {},
    )


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(
        "nme: x\nname: a b\nlisten: nowhere\nkey_file: k\ntls_cert: c\nlogs:\n"
        "  - origin: a\n  - 3\n  - {origin: b, key: b+00000000+AAAA}\n"
    )
    with pytest.raises(SettingsError) as caught:
        load(path)
    text = str(caught.value)
    for part in (
        "did you mean `name`?",
        "no space",
        "is not host:port",
        "state: is required",
        "need each other",
        "key: is required",
        "must be a mapping",
        "is not a verifier key",
    ):
        assert part in text


def test_the_key_of_a_log_serves_its_next_origin_too(tmp_path: Path) -> None:
    path = tmp_path / "witness.yaml"
    log = Log("log.example/a")
    lines = [{"origin": origin, "key": log.verifier_key} for origin in (log.origin, "a#1")]
    configure(tmp_path, logs=lines)
    served = load(path).logs
    assert [key.name for key in served["log.example/a"]] == ["log.example/a"]
    assert [key.name for key in served["a#1"]] == ["log.example/a", "a#1"]
    assert len({key.public for keys in served.values() for key in keys}) == 1
    # A log whose key was rotated has as many keys as it has lines.
    configure(tmp_path, log, Log("log.example/a"))
    assert len({key.public for key in load(path).logs["log.example/a"]}) == 2


def test_a_witness_key_is_no_log_key(tmp_path: Path) -> None:
    key = Log("witness.example/w1").typed_key(4)
    path = configure(tmp_path, logs=[{"origin": "a", "key": key}])
    with pytest.raises(SettingsError, match="of a witness"):
        load(path)
