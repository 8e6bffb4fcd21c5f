"""The section `authzen` of the settings file, and its complaints."""

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from sidecar.settings.sections import READING, ActionRule, AuthzenSettings, ResourceRule
from tests.sidecar.config.settings_file import LEAST, complaints, load

WHOLE = """\
authzen:
  url: https://pdp.example.com/t1
  signing_key_file: authzen.pem
  subject_types: [agent, identity]
  role_property: acting_as
  resources:
    - type: record
      id: "hr-*"
      when: {status: archived}
      source_id: "{type}://{id}"
      sensitivity: high
    - {type: record, id: "hr-?"}
    - {type: record, when: {n: 1, x: 1.5, open: true, by: null}, sensitivity: low}
  actions:
    - {name: read}
    - {name: delete, when: {soft: true}, task: delete_soft}
"""
ED25519 = ed25519.Ed25519PrivateKey.generate()
P256 = ec.generate_private_key(ec.SECP256R1())


def pem(key: Any, form: PrivateFormat = PrivateFormat.PKCS8, password: bytes = b"") -> bytes:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return bytes(key.private_bytes(Encoding.PEM, form, encryption))


def test_without_the_section_the_defaults_hold(base: Path) -> None:
    authzen = load(base, LEAST).authzen
    assert authzen == AuthzenSettings()
    assert authzen.subject_types == ("agent",)
    assert authzen.role_property == "role"
    assert authzen.resources == ()
    assert authzen.actions == tuple(ActionRule(name) for name in READING)
    assert load(base, LEAST + "authzen: {}\n").authzen == authzen


@pytest.mark.parametrize("key", [ED25519, P256], ids=["Ed25519", "P-256"])
def test_every_key_is_read(base: Path, key: Any) -> None:
    (base / "authzen.pem").write_bytes(pem(key))
    assert load(base, LEAST + WHOLE).authzen == AuthzenSettings(
        url="https://pdp.example.com/t1",
        signing_key_file=base / "authzen.pem",
        subject_types=("agent", "identity"),
        role_property="acting_as",
        resources=(
            ResourceRule("record", "hr-*", {"status": "archived"}, "{type}://{id}", "high"),
            ResourceRule("record", "hr-?"),
            ResourceRule(
                "record",
                when={"n": 1, "x": 1.5, "open": True, "by": None},
                sensitivity="low",
            ),
        ),
        actions=(ActionRule("read"), ActionRule("delete", {"soft": True}, "delete_soft")),
    )


def test_an_empty_list_replaces_a_default(base: Path) -> None:
    authzen = load(base, LEAST + "authzen: {subject_types: [], actions: []}\n").authzen
    assert (authzen.subject_types, authzen.actions) == ((), ())


def test_the_environment_overrides(base: Path) -> None:
    environ = {
        "AUTHZEN__URL": "https://other.example",
        "AUTHZEN__SUBJECT_TYPES": "agent, identity",
        "AUTHZEN__RESOURCES__1__SENSITIVITY": "medium",
        "AUTHZEN__RESOURCES__1__WHEN__STATUS": "open",
        "AUTHZEN__SIGNING_KEY_FILE": "ed.pem",
    }
    (base / "ed.pem").write_bytes(pem(ED25519))
    authzen = load(base, LEAST + WHOLE, **environ).authzen
    assert authzen.url == "https://other.example"
    assert authzen.signing_key_file == base / "ed.pem"
    assert authzen.subject_types == ("agent", "identity")
    assert authzen.resources[1] == ResourceRule(
        "record", "hr-?", {"status": "open"}, None, "medium"
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("url: http://pdp.example", "url: `http://pdp.example` is not https://host:port"),
        (
            "url: https://pdp.example/",
            "url: `https://pdp.example/` must not end with `/`: clients compare it with theirs",
        ),
        (
            "url: https://u:p@pdp.example",
            "url: must be only scheme, host, port and path; remove user, query and fragment",
        ),
        (
            "url: https://pdp.example/a?b=1",
            "url: must be only scheme, host, port and path; remove user, query and fragment",
        ),
        (
            "url: https://pdp.example/a?",
            "url: must have neither query nor fragment; remove `?` and `#`",
        ),
        (
            'url: "https://pdp.example/a#"',
            "url: must have neither query nor fragment; remove `?` and `#`",
        ),
        *(
            (
                f'url: "{url}"',
                f"url: `{url}` must be `https://host:port` and a path of plain words",
            )
            for url in (
                "HTTPS://pdp.example",
                "https://pdp.example/a//b",
                "https://pdp.example/../b",
                "https://pdp.example/a/.",
                "https://pdp.example/%61",
                "https://pdp.example/a b",
                "https://pdp_example",
            )
        ),
        ("url: 1", "url: must be a string; YAML reads `1` as a number, so quote it"),
        (
            "signing_key_file: no.pem",
            "signing_key_file: `no.pem` can't be read: ENOENT (no such file or directory)",
        ),
        (
            "subject_types: [agent, 1]",
            "subject_types: must be a list of strings; put numbers in quotes",
        ),
        ('subject_types: [""]', "subject_types: `` must have 1 to 256 characters, has 0"),
        ('role_property: ""', "role_property: must have 1 to 256 characters, has 0"),
        ("role_propert: x", "role_propert: unknown key; did you mean `role_property`?"),
        ("resources: {type: a}", "resources: must be a list; write `[]` for none"),
        ("resources: [a]", "resources[0]: must be a mapping of keys to values"),
        ("resources: [{id: a}]", "resources[0].type: is required"),
        (
            "resources: [{type: a, zzz: b}]",
            "resources[0].zzz: unknown key; expected type, id, when, source_id, sensitivity",
        ),
        (
            "resources: [{type: a, sensitivity: secret}]",
            (
                "resources[0].sensitivity: must be one of `low`, `medium`, `high`, `critical`, "
                "not `secret`"
            ),
        ),
        ('resources: [{type: a, id: ""}]', "resources[0].id: must have 1 to 256 characters, has 0"),
        (
            'resources: [{type: a, source_id: "{id}-{role}"}]',
            "resources[0].source_id: `{id}-{role}` may hold no braces but `{type}` and `{id}`",
        ),
        (
            'resources: [{type: a, source_id: "x}"}]',
            "resources[0].source_id: `x}` may hold no braces but `{type}` and `{id}`",
        ),
        (
            "resources: [{type: a, when: [x]}]",
            (
                "resources[0].when: must be a mapping by name of texts, numbers, `true` or "
                "`false`, not a list"
            ),
        ),
        (
            "resources: [{type: a, when: {x: [1]}}]",
            "resources[0].when.x: a list is not a text, a number, `true`, `false` or `null`",
        ),
        (
            "resources: [{type: a, when: {x: yes}}]",
            "resources[0].when.x: `yes` is not a text, a number, `true`, `false` or `null`",
        ),
        (
            "resources: [{type: a, when: {x: 0x10}}]",
            "resources[0].when.x: `0x10` is not a text, a number, `true`, `false` or `null`",
        ),
        (
            "resources: [{type: a, when: {x: .inf}}]",
            "resources[0].when.x: `.inf` is not a text, a number, `true`, `false` or `null`",
        ),
        (
            "resources: [{type: a, when: {x: 1.0e+999}}]",
            "resources[0].when.x: `1.0e+999` is not a text, a number, `true`, `false` or `null`",
        ),
        (
            "resources: [{type: a, when: {x: 2024-01-01}}]",
            "resources[0].when.x: `2024-01-01` is not a text, a number, `true`, `false` or `null`",
        ),
        (
            'resources: [{type: a, id: "hr-*"}, {type: a, id: hr-1}]',
            "resources[1].type: is never reached: rule 0 of the list matches all of it",
        ),
        (
            "resources: [{type: a, when: {x: 1}}, {type: a, when: {x: 1, y: 2}}]",
            "resources[1].type: is never reached: rule 0 of the list matches all of it",
        ),
        ("actions: read", "actions: must be a list; write `[]` for none"),
        ("actions: [{task: a}]", "actions[0].name: is required"),
        (
            "actions: [{name: read, type: a}]",
            "actions[0].type: unknown key; expected name, when, task",
        ),
        (
            "actions: [{name: read}, {name: read, task: a}]",
            "actions[1].name: is never reached: rule 0 of the list matches all of it",
        ),
    ],
)
def test_an_unusable_value_is_refused_with_a_message(base: Path, text: str, complaint: str) -> None:
    assert complaints(base, f"{LEAST}authzen:\n  {text}\n") == [
        f"sidecar.yaml:4: authzen.{complaint}"
    ]


@pytest.mark.parametrize(
    "rules",
    [
        "[{type: a, id: hr-1}, {type: a, id: 'hr-*'}]",
        "[{type: a, when: {x: 1}}, {type: a, when: {x: true}}, {type: a, when: {x: '1'}}]",
        "[{type: a, when: {x: 1}}, {type: a}, {type: b}]",
    ],
)
def test_a_rule_that_still_matches_something_is_usable(base: Path, rules: str) -> None:
    assert load(base, f"{LEAST}authzen:\n  resources: {rules}\n").authzen.resources


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 40000,
        pem(ED25519, password=b"secret"),
        pem(P256, PrivateFormat.TraditionalOpenSSL),
        pem(ec.generate_private_key(ec.SECP384R1())),
        pem(rsa.generate_private_key(65537, 2048)),
        b"-----BEGIN PRIVATE KEY-----\n",
    ],
    ids=["empty", "binary", "encrypted", "SEC 1", "P-384", "RSA", "cut"],
)
def test_a_key_of_another_kind_cannot_sign(base: Path, content: bytes) -> None:
    (base / "authzen.pem").write_bytes(content)
    [complaint] = complaints(base, f"{LEAST}authzen:\n  signing_key_file: authzen.pem\n")
    assert complaint.startswith("sidecar.yaml:4: authzen.signing_key_file: `authzen.pem` ")
    assert complaint.endswith(
        ": expected a private key, Ed25519 or P-256, as unencrypted PEM (PKCS 8)"
    )
