"""What ingress-nginx's template makes of the recipe's documents, run by nginx.

No test runs the controller. These are the lines of its template that bear on a check, filled in
with the recipe's annotations and ConfigMaps as the controller does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.gateways import recipes
from tests.deploy.gateways.gateway_programs import Behind, run
from tests.deploy.gateways.hostile_requests import check_what_passes
from tests.deploy.gateways.probes import PROBES
from tests.deploy.gateways.protected import Protected
from tests.deploy.gateways.raw_requests import get, one, status
from tests.servers import need
from tests.support.ports import free_port

PREFIX = "nginx.ingress.kubernetes.io/"
TEMPLATE = """\
{user}
events {{}}
http {{
  map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
  server {{
    listen 127.0.0.1:{port};
    location = /_external-auth {{
      internal;
      proxy_pass_request_body off;
      proxy_set_header Content-Length "";
      proxy_set_header X-Forwarded-Proto "";
      proxy_set_header X-Request-ID $request_id;
      {method}
      proxy_set_header Host 127.0.0.1;
      proxy_set_header X-Original-URL $scheme://$http_host$request_uri;
      proxy_set_header X-Original-Method $request_method;
      proxy_set_header X-Sent-From "nginx-ingress-controller";
      proxy_set_header X-Real-IP $remote_addr;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Auth-Request-Redirect $request_uri;
      {check}
      proxy_http_version 1.1;
      set $target "{url}";
      proxy_pass $target;
    }}
    location / {{
      auth_request /_external-auth;
      auth_request_set $authHeader0 $upstream_http_x_sluice_event_id;
      proxy_set_header '{answered}' $authHeader0;
      proxy_set_header Host {host};
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection {connection};
      proxy_set_header X-Request-ID $request_id;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Host $http_host;
      proxy_set_header X-Original-Forwarded-For $http_x_forwarded_for;
      {upstream}
      proxy_http_version 1.1;
      proxy_pass http://127.0.0.1:{behind};
    }}
  }}
}}
"""


def _set(headers: dict[str, str]) -> str:
    return "\n".join(f"proxy_set_header '{name}' '{value}';" for name, value in headers.items())


def rendered(port: int, behind: Behind, more: dict[str, str]) -> str:
    """The configuration that the recipe leads to; `more` are further annotations."""
    text = (recipes.FOLDER / "ingress-nginx" / "ingress.yaml").read_text("utf-8")
    text = text.replace("SLUICE_KEY", behind.key)
    ingress, *maps = yaml.safe_load_all(text)
    named = {f"{m['metadata']['namespace']}/{m['metadata']['name']}": m["data"] for m in maps}
    notes: dict[str, Any] = {**ingress["metadata"]["annotations"], **more}
    notes = {name.removeprefix(PREFIX): value for name, value in notes.items()}
    controller = named["ingress-nginx/ingress-nginx-controller"]
    stated = "proxy_set_header X-Original-URI $request_uri;"
    return TEMPLATE.format(
        user="user root;" if os.getuid() == 0 else "",
        port=port,
        method=f"proxy_method {notes['auth-method']}; {stated}" if "auth-method" in notes else "",
        check=_set(named[notes["auth-proxy-set-headers"]]),
        url=f"http://127.0.0.1:{behind.http_door}/v1/check/ingress-nginx",
        answered=notes["auth-response-headers"],
        host=notes.get("upstream-vhost", "$http_host").replace(
            "crm.crm.svc.cluster.local:9000", f"127.0.0.1:{behind.upstream}"
        ),
        connection=notes.get("connection-proxy-header", "$connection_upgrade"),
        upstream=_set(named[controller["proxy-set-headers"]]),
        behind=behind.upstream,
    )


@contextmanager
def controller(folder: Path, behind: Behind, **more: str) -> Iterator[int]:
    folder.mkdir(exist_ok=True)
    program, port = need("nginx"), free_port()
    (folder / "nginx.conf").write_text(rendered(port, behind, more))
    script = 'nginx -p "$PWD" -c nginx.conf -g "daemon off;"\n'
    yield from run(script, program, folder, port)


@pytest.fixture(scope="module")
def port(world: Protected, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with controller(tmp_path_factory.mktemp("ingress"), world.behind) as found:
        yield found


def test_the_annotations_name_the_door() -> None:
    text = (recipes.FOLDER / "ingress-nginx" / "ingress.yaml").read_text("utf-8")
    (door,) = recipes.sidecar("ingress-nginx")["doors"]
    (line,) = [each for each in text.splitlines() if f"{PREFIX}auth-url" in each]
    assert line.endswith(f"/v1/check/{door['name']}")
    assert door["request_from"] == "original"


def test_no_probe_gets_past_but_the_forwarded_host(world: Protected, port: int) -> None:
    assert status(one(port, get("/info/a"))) == 200
    found = [name for name, probe in PROBES.items() if probe(world, port)]
    # The controller always adds the client's host, which the recipe's README says.
    assert found == ["forwarded host"]


@pytest.mark.deep(stands_in="test_no_probe_gets_past_but_the_forwarded_host")
def test_the_upstream_gets_only_judged_requests(world: Protected, port: int) -> None:
    check_what_passes(world, port)


@pytest.mark.parametrize(
    "host", ["kb?", "kb#", "kb\\", "kb/info/a?", "kb@x", "kb:80?", "kb%2f", "kb;x"]
)
def test_no_host_hides_the_path(host: str, world: Protected, port: int) -> None:
    world.upstream.take()
    for path in ("/admin", "/info/a"):
        one(port, f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert world.unjudged(world.upstream.take()) == []


def test_a_request_that_is_described_twice_is_denied(world: Protected, tmp_path: Path) -> None:
    with controller(tmp_path, world.behind, **{f"{PREFIX}auth-method": "GET"}) as port:
        world.upstream.take()
        assert status(one(port, get("/info/a"))) == 403
        assert world.upstream.take() == []


@pytest.mark.parametrize("url", ["http://kb?/admin", "http://kb", "http://kb?", "http://kb#/admin"])
def test_an_address_without_a_path_is_denied(url: str, world: Protected) -> None:
    """An nginx that is less strict than this one lets such a `Host` through, before the path."""
    fields = ("X-Original-Method: GET", f"X-API-Key: {world.stack.agent_key}")
    door = world.behind.http_door
    plain = one(door, get("/v1/check/ingress-nginx", *fields, "X-Original-URL: http://kb/"))
    assert status(plain) == 200
    asked = one(door, get("/v1/check/ingress-nginx", *fields, f"X-Original-URL: {url}"))
    assert status(asked) == 403
    assert b"unreadable_request" in asked
