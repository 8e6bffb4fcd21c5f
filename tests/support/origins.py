"""Real HTTP servers as data sources behind a proxy: nginx, haproxy before a Python server, Node,
and two Python servers with unrelated parsers. Each is a process on a free loopback port with an
access log, and ends with its `with` block.

All give the responses of `origin_apps/answers.py`: some paths have content worth passing on, all
others echo the request. `tests/servers.py` says where the programs come from; a test that needs an
absent one is skipped.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import servers
from tests.support.ports import free_port
from tests.support.stack import Service, listens
from tests.support.waiting import until

APPS = Path(__file__).with_name("origin_apps")

_NGINX = """\
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/nginx-error.log error;
worker_processes 1;
{user}
events {{ worker_connections 1024; }}
http {{
  js_import answers from "{apps}/nginx.js";
  log_format cases "$http_x_case $request_method $request_uri";
  access_log {log} cases;
  client_body_temp_path {directory}/temporary;
  proxy_temp_path {directory}/temporary;
  fastcgi_temp_path {directory}/temporary;
  uwsgi_temp_path {directory}/temporary;
  scgi_temp_path {directory}/temporary;
  client_body_buffer_size 1m;
  keepalive_timeout 120s;
  types {{ text/plain txt; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ js_content answers.answer; }}
    location /files/ {{ root {directory}; gzip on; gzip_types text/plain; gzip_min_length 1; }}
  }}
}}
"""

_HAPROXY = """\
global
  log stdout format raw local0
defaults
  mode http
  log global
  timeout client 120s
  timeout server 120s
  timeout connect 5s
frontend in
  bind 127.0.0.1:{port}
  capture request header X-Case len 32
  log-format "%[capture.req.hdr(0)] %HM %HU"
  default_backend source
backend source
  server source 127.0.0.1:{before}
"""


@dataclass(frozen=True)
class Origin:
    """One server. Its log has a line per request: the header `X-Case` or `-`, method and target."""

    name: str
    port: int
    log: Path
    pid: int

    def seen(self) -> list[str]:
        """Return the log's lines so far."""
        return self.log.read_text(errors="replace").splitlines()

    def cases(self) -> set[str]:
        """Return every `X-Case` that has arrived."""
        return {line.split(" ")[0] for line in self.seen()}


@contextmanager
def nginx(directory: Path) -> Iterator[Origin]:
    """Start nginx: static files below `/files/`, and njs for the rest."""
    program = servers.need("nginx")
    port, log = free_port(), directory / "nginx-access.log"
    config = directory / "nginx.conf"
    (directory / "files").mkdir()
    (directory / "files" / "a.txt").write_text("line\n" * 400)
    # Root's workers would be another user's, who may not read the folder.
    user = "user root;" if os.geteuid() == 0 else ""
    config.write_text(_NGINX.format(directory=directory, user=user, apps=APPS, log=log, port=port))
    with _running("nginx", [str(program), "-c", str(config)], directory, port) as service:
        yield Origin("nginx", port, log, service.pid)


@contextmanager
def haproxy(directory: Path) -> Iterator[Origin]:
    """Start haproxy before uvicorn: its parser is another than uvicorn's."""
    program = servers.need("haproxy")
    with uvicorn(directory, "httptools") as behind:
        port = free_port()
        config = directory / "haproxy.cfg"
        config.write_text(_HAPROXY.format(port=port, before=behind.port))
        command = [str(program), "-f", str(config), "-db"]
        with _running("haproxy", command, directory, port) as service:
            yield Origin("haproxy", port, service.log, service.pid)


@contextmanager
def node(directory: Path) -> Iterator[Origin]:
    program = servers.need("node")
    port = free_port()
    command = [str(program), str(APPS / "node.mjs"), str(port)]
    with _running("node", command, directory, port) as service:
        yield Origin("node", port, service.log, service.pid)


@contextmanager
def uvicorn(directory: Path, parser: str = "h11") -> Iterator[Origin]:
    """Start an ASGI server, which parses with h11 unless told otherwise."""
    _need_module("uvicorn")
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "tests.support.origin_apps.asgi:app"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--http", parser, "--lifespan", "off"]
    command += ["--no-access-log", "--log-level", "critical", "--timeout-keep-alive", "120"]
    name = f"uvicorn-{parser}"
    with _running(name, command, directory, port) as service:
        yield Origin(name, port, service.log, service.pid)


@contextmanager
def waitress(directory: Path) -> Iterator[Origin]:
    """Start a WSGI server with its own parser."""
    _need_module("waitress")
    port = free_port()
    command = [sys.executable, "-m", "tests.support.origin_apps.wsgi", str(port)]
    with _running("waitress", command, directory, port) as service:
        yield Origin("waitress", port, service.log, service.pid)


ALL = {
    "nginx": nginx,
    "haproxy": haproxy,
    "node": node,
    "uvicorn": uvicorn,
    "waitress": waitress,
}


def _need_module(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"no {name} here: its wheel brings it")


@contextmanager
def _running(name: str, command: list[str], directory: Path, port: int) -> Iterator[Service]:
    service = Service(name, command, {}, directory / f"{name}.log", port)
    with ExitStack() as stack:
        service.start(ready=False)
        stack.callback(service.stop)
        try:
            until(f"{name} listens", lambda: listens(port))
        except AssertionError as late:
            raise AssertionError(f"{late}\n{service.tail()}") from None
        yield service
