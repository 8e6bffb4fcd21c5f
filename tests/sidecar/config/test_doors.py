"""The settings of check doors, and the complaints about wrong ones."""

import json
from pathlib import Path

import pytest

from policies.ground.addresses import ListenAddress
from sidecar.settings.sections import Door, DoorAgent, DoorHeaders, DoorTls
from tests.sidecar.config.settings_file import LEAST, SOURCE, complaints, load
from tests.support.certificates import authority

UNSERVED = """\
sources:
  - alias: crm
    kind: rest
    upstream: http://127.0.0.1:8000
    sensitivity: medium
"""
EDGE = "{name: edge, protocol: envoy_http, source: crm}"
AGENT = "agent: {role: r, key_file: agent.key}\n"
NONE = "key: none, agent: {id: a, role: r}"


def doors(*items: str) -> str:
    return "doors:\n" + "".join(f"  - {item}\n" for item in items)


def test_a_doors_source_needs_neither_a_port_nor_an_agent(base: Path) -> None:
    settings = load(base, LEAST + UNSERVED + doors(EDGE))
    assert settings.doors == (Door("edge", "envoy_http", "crm"),)
    assert settings.agent is None
    assert settings.sources[0].listen is None


def test_every_key_is_read(base: Path) -> None:
    gateways = authority()
    pair = gateways.issue("edge.test")
    text = json.dumps(
        {
            "name": "e_1-x",
            "protocol": "forward_auth",
            "source": "crm",
            "listen": "0.0.0.0:8720",
            "listen_tls": {
                "certificate": str(pair.certificate),
                "key": str(pair.key),
                "client_ca": str(gateways.path),
            },
            "key": "none",
            "agent": {"id": "agt", "role": "r"},
            "request_from": "original",
            "headers": {"user": "X-Remote-User"},
        }
    )
    [door] = load(base, LEAST + AGENT + UNSERVED + doors(text)).doors
    assert door == Door(
        "e_1-x",
        "forward_auth",
        "crm",
        ListenAddress("0.0.0.0", 8720),
        DoorTls(pair.certificate, pair.key, gateways.path),
        "none",
        DoorAgent("agt", "r"),
        "original",
        DoorHeaders(user="X-Remote-User"),
    )


def test_the_environment_overrides(base: Path) -> None:
    [door] = load(base, LEAST + UNSERVED + doors(EDGE), DOORS__0__NAME="other").doors
    assert door.name == "other"


def test_a_source_without_a_port_is_still_refused_without_a_door(base: Path) -> None:
    assert "sources[0].listen: is required" in complaints(base, LEAST + UNSERVED)[0]


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("{protocol: envoy_http, source: crm}", "doors[0].name: is required"),
        ("{name: Edge, protocol: envoy_http, source: crm}", "name: `Edge` must be 1 to 32 of a-z"),
        (f"{{name: {'a' * 33}, protocol: envoy_http, source: crm}}", "must be 1 to 32 of a-z"),
        ("{name: a/b, protocol: envoy_http, source: crm}", "`a/b` must be 1 to 32 of a-z"),
        *(
            (
                f"{{name: {name}, protocol: envoy_http, source: crm}}",
                f"doors[0].name: `{name}` means something else as `source_type`",
            )
            for name in ("api", "sdk", "rest", "langchain", "bedrock", "authzen", "chroma", "tcp")
        ),
        ("{name: a, source: crm}", "doors[0].protocol: is required"),
        ("{name: a, protocol: envoy, source: crm}", "`forward_auth`, not `envoy`"),
        ("{name: a, protocol: envoy_http}", "doors[0].source: is required"),
        ("{name: a, protocol: envoy_http, source: hr}", "`hr` is not the alias of a source"),
        (f"{{{EDGE[1:-1]}, request_from: original}}", "applies only to the protocol"),
        ("{name: a, protocol: envoy_grpc, source: crm}", "`envoy_grpc`"),
        (f"{{{EDGE[1:-1]}, listen: nowhere}}", "doors[0].listen: "),
        (f"{{{EDGE[1:-1]}, listen: '127.0.0.1:8710'}}", "is already the address of `listen`"),
        (f"{{{EDGE[1:-1]}, key: maybe}}", "key: must be one of `required`, `none`, not `maybe`"),
        (f"{{{EDGE[1:-1]}, agent: {{id: a}}}}", "doors[0].agent.role: is required"),
        (f"{{{EDGE[1:-1]}, headers: {{user: 'a b'}}}}", "headers.user: `a b` is not the name"),
        (f"{{{EDGE[1:-1]}, headers: {{user: x_user}}}}", "headers.user: `x_user` is not the name"),
        (f"{{{EDGE[1:-1]}, headers: {{task: X-API-Key}}}}", "is read as something else"),
        (
            f"{{{EDGE[1:-1]}, headers: {{task: X-Sluice-User}}}}",
            "headers.task: `X-Sluice-User` is already the header of `user`",
        ),
        (f"{{{EDGE[1:-1]}, header: {{}}}}", "doors[0].header: unknown key; did you mean"),
        (
            f"{{{EDGE[1:-1]}, listen_tls: {{certificate: a, key: b}}}}",
            "doors[0].listen_tls: ",
        ),
    ],
)  # fmt: skip
def test_a_fault_is_reported_with_its_place(base: Path, item: str, said: str) -> None:
    told = complaints(base, LEAST + AGENT + UNSERVED + doors(item))
    assert any(said in each for each in told)
    assert all(each.startswith("sidecar.yaml") for each in told)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("key: none", "doors[0].key: `none` needs `agent`"),
        (f"{NONE}, listen: '0.0.0.0:8720'", "doors[0].key: `none` needs `listen` on loopback"),
        (f"{NONE}, listen: '*:8720'", "doors[0].key: `none` needs `listen` on loopback"),
    ],
)
def test_a_door_without_a_key_must_not_be_reachable_by_others(
    base: Path, item: str, said: str
) -> None:
    [told] = complaints(base, LEAST + AGENT + UNSERVED + doors(f"{{{EDGE[1:-1]}, {item}}}"))
    assert said in told


def test_a_door_without_a_key_needs_the_agent_s_own(base: Path) -> None:
    item = f"{{{EDGE[1:-1]}, {NONE}}}"
    [told] = complaints(base, LEAST + UNSERVED + doors(item))
    assert "doors[0].key: `none` needs `agent.key_file`" in told
    assert load(base, LEAST + AGENT + UNSERVED + doors(item)).doors[0].key == "none"


def test_without_a_key_the_shared_port_must_be_on_loopback(base: Path) -> None:
    item = f"{{{EDGE[1:-1]}, {NONE}}}"
    text = LEAST + AGENT + UNSERVED + doors(item)
    [told] = complaints(base, text, LISTEN="0.0.0.0:8710")
    assert "needs `listen` on loopback" in told


def test_names_and_addresses_belong_to_one_door(base: Path) -> None:
    told = complaints(base, LEAST + UNSERVED + doors(EDGE, EDGE))
    assert ["doors[1].name: `edge` is already the name of doors[0]" in each for each in told] == [
        True
    ]
    listen = ", listen: '127.0.0.1:8720'}"
    other = EDGE.replace("edge", "two")
    told = complaints(base, LEAST + UNSERVED + doors(EDGE[:-1] + listen, other[:-1] + listen))
    assert len(told) == 1
    assert "`127.0.0.1:8720` is already the address of `doors[0].listen`" in told[0]


def test_a_tcp_source_cant_be_checked(base: Path) -> None:
    text = SOURCE.replace("chroma", "tcp").replace("http:", "tcp:")
    item = EDGE.replace("crm", "kb")
    told = complaints(base, LEAST + text + doors(item))
    assert any("doors[0].source: `kb` is of the kind `tcp`" in each for each in told)


def test_an_empty_client_authority_is_refused(base: Path) -> None:
    pair = authority().issue("edge.test")
    (base / "empty.pem").write_text("")
    tls = {"certificate": str(pair.certificate), "key": str(pair.key), "client_ca": "empty.pem"}
    item = f"{{{EDGE[1:-1]}, listen: '127.0.0.1:8720', listen_tls: {json.dumps(tls)}}}"
    [told] = complaints(base, LEAST + UNSERVED + doors(item))
    assert "`client_ca` can't be used" in told
