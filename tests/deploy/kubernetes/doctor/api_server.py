"""As much of a Kubernetes API server as `kubectl get` needs: the list of groups and resources, and
one list of objects for each resource. Knows no object."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from deploy.kubernetes.doctor.command import KINDS

FORBIDDEN = {
    "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
    "message": "clusterroles is forbidden: User \"ann\" cannot list resource",
}  # fmt: skip


def _places() -> dict[str, dict[str, Any]]:
    """For each path of a group's version, its resources."""
    groups: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        plural, _, group = kind.resource.partition(".")
        groups.setdefault(f"/apis/{group}/v1" if group else "/api/v1", {})[plural] = kind
    return groups


class ApiServer(BaseHTTPRequestHandler):
    """Answers from `items`; resources in `absent` it does not know, those in `refused` it hides."""

    items: tuple[dict[str, Any], ...] = ()
    absent: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        found = self._found(path)
        body = json.dumps(found or {"kind": "Status", "code": 404}).encode()
        code = 404 if found is None else int(found.get("code", 200))
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _found(self, path: str) -> dict[str, Any] | None:
        places = _places()
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            versions = [each.removeprefix("/apis/") for each in places if "/apis/" in each]
            return {
                "kind": "APIGroupList",
                "groups": [
                    {"name": each.partition("/")[0],
                     "versions": [{"groupVersion": each, "version": "v1"}],
                     "preferredVersion": {"groupVersion": each, "version": "v1"}}
                    for each in versions
                ],
            }  # fmt: skip
        if path in places:
            return self._resources(path, places[path])
        parent, _, plural = path.rpartition("/")
        kind = places.get(parent, {}).get(plural)
        if kind is None or plural in self.absent:
            return None
        if plural in self.refused:
            return FORBIDDEN
        version = parent.removeprefix("/apis/").removeprefix("/api/")
        items = [
            {**each, "apiVersion": version} for each in self.items if each["kind"] == kind.kind
        ]
        return {"kind": f"{kind.kind}List", "apiVersion": version, "items": items}

    def _resources(self, path: str, plurals: dict[str, Any]) -> dict[str, Any]:
        return {
            "kind": "APIResourceList",
            "groupVersion": path.removeprefix("/apis/").removeprefix("/api/"),
            "resources": [
                {"name": plural, "singularName": "", "kind": kind.kind, "verbs": ["list", "get"],
                 "namespaced": kind.kind in ("Pod", "ConfigMap", "Service", "NetworkPolicy",
                                             "Role", "RoleBinding")}
                for plural, kind in plurals.items()
                if plural not in self.absent
            ],
        }  # fmt: skip

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its base's name
        """Writes nothing."""


@contextmanager
def api_server(
    items: list[dict[str, Any]], absent: tuple[str, ...] = (), refused: tuple[str, ...] = ()
) -> Iterator[str]:
    """The address of a server with these objects."""
    told = {"items": tuple(items), "absent": frozenset(absent), "refused": frozenset(refused)}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Answering", (ApiServer,), told))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
