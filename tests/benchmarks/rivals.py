"""The proxies and the decision server that ours are held against, each as its makers advise it for
speed: one worker, connections kept to both sides, no access log.

Knows how each is started. Knows nothing of figures. What nginx and Envoy ask for a decision says
yes at once and records nothing (`bare.py`), so both look better than they would in use. Cerbos
writes its decisions to a file, and answers before they are on disk.
"""

import http.client
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.mixed import cerbos_policies
from tests.support.ports import free_port
from tests.support.stack import Service
from tests.support.waiting import AWAY, until


@dataclass(frozen=True)
class Place:
    """Where a rival stands: its folder, and the ports of the data source and of what decides."""

    directory: Path
    upstream: int
    decision: int
    cores: set[int]


_NGINX = """\
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/nginx-error.log error;
worker_processes 1;
{user}
events {{ worker_connections 8192; multi_accept on; }}
http {{
  access_log off;
  client_body_temp_path {directory}/temporary;
  proxy_temp_path {directory}/temporary;
  fastcgi_temp_path {directory}/temporary;
  uwsgi_temp_path {directory}/temporary;
  scgi_temp_path {directory}/temporary;
  keepalive_requests 1000000000;
  upstream source {{
    server 127.0.0.1:{upstream};
    keepalive 128;
    keepalive_requests 1000000000;
  }}
  upstream decision {{
    server 127.0.0.1:{decision};
    keepalive 128;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    location / {{
      auth_request /decide;
      proxy_pass http://source;
    }}
    location = /decide {{
      internal;
      proxy_pass http://decision;
      proxy_pass_request_body off;
      proxy_set_header Content-Length "";
      proxy_set_header X-Original-URI $request_uri;
    }}
  }}
}}
"""


@contextmanager
def nginx(program: Path, place: Place) -> Iterator[Service]:
    """nginx with `auth_request`. Of a version that keeps the connection to the decision server,
    which 1.22 does not."""
    port = free_port()
    # Root's workers would be another user's, who may not write in the folder.
    user = "user root;" if os.geteuid() == 0 else ""
    config = place.directory / f"nginx-{port}.conf"
    config.write_text(
        _NGINX.format(
            directory=place.directory,
            user=user,
            upstream=place.upstream,
            decision=place.decision,
            port=port,
        )
    )
    yield from _running("nginx", [str(program), "-c", str(config)], port, place)


@contextmanager
def envoy(program: Path, place: Place) -> Iterator[Service]:
    """Envoy with its HTTP `ext_authz`."""
    port = free_port()
    config = place.directory / f"envoy-{port}.json"
    config.write_text(json.dumps(_envoy(port, place.upstream, place.decision)))
    command = [str(program), "-c", str(config), "--concurrency", "1", "--disable-hot-restart"]
    yield from _running("envoy", [*command, "-l", "error"], port, place)


@contextmanager
def cerbos(program: Path, place: Place) -> Iterator[Service]:
    """Cerbos with its audit log in a file, which it does not sync."""
    port, grpc = free_port(), free_port()
    policies = place.directory / "cerbos"
    policies.mkdir()
    for name, text in cerbos_policies().items():
        (policies / name).write_text(text)
    config = place.directory / "cerbos.yaml"
    settings = {
        "server": {"httpListenAddr": f"127.0.0.1:{port}", "grpcListenAddr": f"127.0.0.1:{grpc}"},
        "storage": {"driver": "disk", "disk": {"directory": str(policies)}},
        "audit": {
            "enabled": True,
            "accessLogsEnabled": False,
            "decisionLogsEnabled": True,
            "backend": "file",
            "file": {"path": str(place.directory / "cerbos-audit.log")},
        },
        "telemetry": {"disabled": True},
    }
    config.write_text(json.dumps(settings))
    command = [str(program), "server", f"--config={config}", "--log-level=error"]
    yield from _running("cerbos", command, port, place, "/_cerbos/health")


def _running(
    name: str, command: list[str], port: int, place: Place, path: str = "/"
) -> Iterator[Service]:
    log = place.directory / f"{name}-{port}.log"
    service = Service(name, command, {}, log, port, place.cores)
    service.start(ready=False)
    try:
        until(f"{name} answers", lambda: _status(port, path) == 200, despite=AWAY)
        yield service
    except AssertionError as error:
        raise AssertionError(f"{error}\n{service.tail()}") from None
    finally:
        service.stop()


def _status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def _envoy(port: int, upstream: int, decision: int) -> dict[str, Any]:
    package = "type.googleapis.com/envoy.extensions.filters"
    decide = {
        "@type": f"{package}.http.ext_authz.v3.ExtAuthz",
        "failure_mode_allow": False,
        "http_service": {
            "server_uri": {"uri": "http://decision", "cluster": "decision", "timeout": "5s"},
        },
    }
    route = {
        "@type": f"{package}.http.router.v3.Router",
        "dynamic_stats": False,
        "suppress_envoy_headers": True,
    }
    manager = {
        "@type": f"{package}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "proxy",
        "codec_type": "HTTP1",
        "generate_request_id": False,
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "source"}}],
                }
            ]
        },
        "http_filters": [
            {"name": "envoy.filters.http.ext_authz", "typed_config": decide},
            {"name": "envoy.filters.http.router", "typed_config": route},
        ],
    }
    chain = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
    listener = {"name": "in", "address": _at(port), "filter_chains": [{"filters": [chain]}]}
    clusters = [_cluster("source", upstream), _cluster("decision", decision)]
    return {"static_resources": {"listeners": [listener], "clusters": clusters}}


def _at(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _cluster(name: str, port: int) -> dict[str, Any]:
    endpoint = {"endpoint": {"address": _at(port)}}
    assignment = {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]}
    return {"name": name, "type": "STATIC", "load_assignment": assignment}
