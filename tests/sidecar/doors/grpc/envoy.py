"""A real Envoy before a scripted data source, which asks a gRPC check door."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sidecar.settings.model import Pair
from tests import servers
from tests.sidecar.doors.grpc.grpc_setup import KEY
from tests.support.ports import free_port
from tests.support.waiting import until_async

_TYPES = "type.googleapis.com/envoy.extensions"


class Envoy:
    """A running Envoy."""

    def __init__(self, port: int, log: Path) -> None:
        self.port = port
        self._log = log

    def access_log(self) -> list[dict[str, str]]:
        """What the check's filter told Envoy, of each request."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [json.loads(line) for line in lines]


@asynccontextmanager
async def envoy(
    folder: Path,
    door: int,
    upstream: int,
    *,
    key: str | None = KEY,
    **more: Any,
) -> AsyncIterator[Envoy]:
    """An Envoy that asks the door at that port; `more` is for its `configuration`."""
    program = servers.need("envoy")
    port, log = free_port(), folder / "access.log"
    config = configuration(port, door, upstream, key=key, log=log, **more)
    (folder / "envoy.json").write_text(json.dumps(config))
    process = await asyncio.create_subprocess_exec(
        str(program), "-c", str(folder / "envoy.json"), "--use-dynamic-base-id", "--concurrency",
        "1", "--log-level", "error", "--file-flush-interval-msec", "50",
    )  # fmt: skip
    try:
        await until_async("Envoy listens", lambda: process.returncode is not None or _open(port))
        assert process.returncode is None, "Envoy ended"
        yield Envoy(port, log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def configuration(
    port: int,
    door: int,
    upstream: int,
    *,
    key: str | None = KEY,
    tls: dict[str, Any] | None = None,
    words: dict[str, str] | None = None,
    log: Path | None = None,
    **check: Any,
) -> dict[str, Any]:
    """`check` are members of the filter's settings, `words` the route's `context_extensions`, and
    `tls` says how the door is reached."""
    metadata = [] if key is None else [{"key": "x-api-key", "value": key}]
    service = {
        "envoy_grpc": {"cluster_name": "door"},
        "timeout": "2s",
        "initial_metadata": metadata,
    }
    members = {"transport_api_version": "V3", "grpc_service": service, **check}
    filters = [
        _typed("envoy.filters.http.ext_authz", "filters.http.ext_authz.v3.ExtAuthz", **members),
        _typed("envoy.filters.http.router", "filters.http.router.v3.Router"),
    ]
    route: dict[str, Any] = {"match": {"prefix": "/"}, "route": {"cluster": "upstream"}}
    if words is not None:
        name = "envoy.filters.http.ext_authz"
        said = _typed(
            name,
            "filters.http.ext_authz.v3.ExtAuthzPerRoute",
            check_settings={"context_extensions": words},
        )
        route["typed_per_filter_config"] = {name: said["typed_config"]}
    manager = _typed(
        "envoy.filters.network.http_connection_manager",
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="in",
        route_config={
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [route],
                }
            ]
        },
        http_filters=filters,
        access_log=[] if log is None else [_access_log(log)],
    )
    listener = {
        "name": "in",
        "address": _address(port),
        "filter_chains": [{"filters": [manager]}],
    }
    return {
        "static_resources": {
            "listeners": [listener],
            "clusters": [_cluster("upstream", upstream), _http2(_cluster("door", door), tls)],
        }
    }


def client_tls(ca: Path, shown: Pair | None) -> dict[str, Any]:
    """TLS to a door whose certificate is of this authority, with a client certificate."""
    common: dict[str, Any] = {
        "validation_context": {"trusted_ca": {"filename": str(ca)}},
    }
    if shown is not None:
        files = {"certificate_chain": shown.certificate, "private_key": shown.key}
        common["tls_certificates"] = [
            {name: {"filename": str(path)} for name, path in files.items()}
        ]
    return {"common_tls_context": common}


def _access_log(path: Path) -> dict[str, Any]:
    of_check = "%DYNAMIC_METADATA(envoy.filters.http.ext_authz:{}:0)%"
    names = ("decision", "event_id", "policy_name", "check")
    form = {name: of_check.replace("{}:0", name) for name in names}
    return _typed(
        "envoy.access_loggers.file",
        "access_loggers.file.v3.FileAccessLog",
        path=str(path),
        log_format={"json_format": form},
    )


def speaks_http2(cluster: dict[str, Any]) -> None:
    """Make the connections to a cluster those of HTTP/2."""
    options = "upstreams.http.v3.HttpProtocolOptions"
    cluster["typed_extension_protocol_options"] = {
        f"envoy.extensions.{options}": {
            "@type": f"{_TYPES}.{options}",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
    }


def _http2(cluster: dict[str, Any], tls: dict[str, Any] | None) -> dict[str, Any]:
    speaks_http2(cluster)
    if tls is not None:
        cluster["transport_socket"] = _typed(
            "envoy.transport_sockets.tls", "transport_sockets.tls.v3.UpstreamTlsContext", **tls
        )
    return cluster


def _cluster(name: str, port: int) -> dict[str, Any]:
    endpoint = {"lb_endpoints": [{"endpoint": {"address": _address(port)}}]}
    return {
        "name": name,
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [endpoint]},
    }


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _typed(name: str, kind: str, **members: Any) -> dict[str, Any]:
    return {"name": name, "typed_config": {"@type": f"{_TYPES}.{kind}", **members}}


def _open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
