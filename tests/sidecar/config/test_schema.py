"""The JSON Schema of the settings file: it refuses nothing that the reader takes, and it takes what
the reader refuses only for the reasons listed here."""

import json
import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import jsonschema_rs
import pytest
import yaml

from policies.ground.settings import SettingsError
from sidecar.config.help import keys, settings_schema
from tests.sidecar.config.settings_file import load
from tests.support.mutation import mutated
from tests.support.properties import few

SCHEMA = jsonschema_rs.Draft202012Validator(settings_schema())
# Sorted: the cases must not follow the hashes of this process.
KEYS = tuple(sorted({key.rpartition(".")[2] for key, _ in keys()}))

BEYOND = {
    "a file": r"key_file:|token_file:|_tls: |tls: |is not a file|does not exist|can't be read|PEM|"
    r"certificate",
    "an address": r"is not (https?|tcp)://|is not an address|must be only scheme|host:port|"
    r"listen: |forward_proxy: |transparent: |upstream: |control: |endpoint: `|redis: ",
    "a rule": r"is never reached|may hold no braces|must not end with|neither query",
    "a network or name": r"hosts: |addresses: |server_name: |paths?: ",
    "one key beside another": r"appl(y|ies) only|does not apply|is impossible|must be absent|"
    r"leads to no source|needs `|is required with|is already|must begin with `\w+://|needs both|"
    r"must be the same|port \d+ is also|agent: |spool\.",
}
"""What a schema can't say, and the complaints about it (`policies/README.md`)."""


def settings(random: Random) -> dict[str, Any]:
    """Settings that the reader takes."""

    def some(**optional: Any) -> dict[str, Any]:
        return {key: each for key, each in optional.items() if random.random() < 0.4}

    sources = [
        {
            "alias": f"kb{number}",
            "kind": "rest",
            "upstream": "http://127.0.0.1:8000",
            "listen": f"127.0.0.1:{18000 + number}",
            "sensitivity": random.choice(["low", "critical"]),
            **some(
                writes="allow",
                mode="report",
                names={f"rest://kb{number}/a": {"source_id": "a", "sensitivity": "high"}},
                routes=[{"method": "GET", "path": "/x/{name}", "class": "retrieve"}],
                defaults={"user": "u", "session": "s", "task": None},
                hosts=["kb.example", "*.kb.example"],
                path=f"/kb{number}",
                addresses="10.0.0.0/8, 192.168.0.0/16",
                sensitivity_field="acl.level",
            ),
        }
        for number in range(random.randint(0, 2))
    ]
    return {
        "control": "http://127.0.0.1:8700",
        "key_file": "sidecar.key",
        "agent": {"role": "r", "key_file": "agent.key", **some(id="agt_1")},
        "sources": sources,
        **some(
            id="sidecar-1",
            compress="never",
            listen="127.0.0.1:8710",
            metrics_listen="127.0.0.1:8711",
            cache="cache",
            staleness_seconds=random.choice([1, 30.5, 86400]),
            drain_seconds=0,
            spool={"dir": "spool", "mode": "sync", "max_bytes": 1_073_741_824},
            encrypted_hello="allow",
            authzen=some(
                subject_types=["agent", "identity"],
                role_property="acting_as",
                resources=[
                    {"type": "record", "when": {"status": "archived", "n": 1, "by": None}},
                    {"type": "record", "id": "hr-*", "sensitivity": "high"},
                    {"type": "file", "source_id": "files"},
                ],
                actions=[{"name": "read"}, {"name": "delete", "task": "delete_soft"}],
            ),
            traces={"endpoint": "http://127.0.0.1:4318", "sample_ratio": 0.5},
            redis=None,
            redirect_check_seconds=random.choice([0, 0, 0, 5]),
        ),
    }


def complaints(folder: Path, text: str) -> list[str]:
    try:
        load(folder, text)
    except SettingsError as error:
        return error.complaints
    return []


def test_the_schema_and_the_reader_agree_on_a_few_files(base: Path) -> None:
    assert _agreed(base, Random(3), 40)["refused"]


@pytest.mark.deep(stands_in="test_the_schema_and_the_reader_agree_on_a_few_files")
def test_the_schema_and_the_reader_agree_on_many_files(base: Path) -> None:
    seen = _agreed(base, Random(17), few(2000, at_least=400))
    assert {"taken", "refused", "a file", "one key beside another"} <= seen.keys(), seen
    assert min(seen["taken"], seen["refused"]) > seen.total() / 6


def _agreed(base: Path, random: Random, count: int) -> Counter[str]:
    """How many settings both take, the schema refuses, or only the reader refuses, by why."""
    seen = Counter[str]()
    for _ in range(count):
        changed = mutated(settings(random), random, random.choice([0, 1, 1, 1]), KEYS)
        text = yaml.safe_dump(changed, sort_keys=False)
        told = complaints(base, text)
        if not told:
            SCHEMA.validate(changed)
            seen["taken"] += 1
        elif SCHEMA.is_valid(changed):
            # Each complaint is of a kind that a schema can't make.
            for each in told:
                kinds = [kind for kind, form in BEYOND.items() if re.search(form, each)]
                assert kinds, (each, text)
                seen[kinds[0]] += 1
        else:
            seen["refused"] += 1
    return seen


def test_every_key_is_in_the_schema() -> None:
    """The reader reads each key of the settings, under its name, and no other."""

    def named(form: Any, within: str) -> set[str]:
        if isinstance(form, list):
            return set().union(*(named(each, within) for each in form))
        if not isinstance(form, dict):
            return set()
        found = set().union(
            *(named(form.get(word), within) for word in ("anyOf", "items", "additionalProperties"))
        )
        for key, each in form.get("properties", {}).items():
            found |= {within + key, *named(each, f"{within}{key}.")}
        return found

    assert named(json.loads(json.dumps(settings_schema())), "") == {key for key, _ in keys()}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("control: http://c:1\n", "key_file"),
        ("control: http://c:1\nkey_file: k\nspool: {mode: fast}\n", "fast"),
        ("control: http://c:1\nkey_file: k\ncontroll: x\n", "controll"),
        ("control: 8700\nkey_file: k\n", "string"),
        ("control: http://c:1\nkey_file: k\ndrain_seconds: 3601\n", "3600"),
        ("control: http://c:1\nenrol: {}\n", "token_file"),
    ],
)
def test_mistakes_are_refused(text: str, fault: str) -> None:
    with pytest.raises(jsonschema_rs.ValidationError, match=fault):
        SCHEMA.validate(yaml.safe_load(text))


def test_enrolment_needs_no_key() -> None:
    SCHEMA.validate({"control": "http://c:1", "enrol": {"token_file": "token"}})
