"""A control API that a module's tests share, each as the admin of a tenant of its own.

A start of the service costs several times as much as a tenant, and the product keeps tenants apart.
A test needs an installation of its own, `fresh` or `either`, if it stops the service, moves its
clock, changes its files, its database or its code, reads its metrics or its logging, or needs
a second tenant.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from control_api.settings import Settings
from tests.support.control_api import POLICY, Answer, ControlApi


class SharedApi(ControlApi):
    """The API as the admin of a new tenant sees it, which has the usual policy. Methods that would
    reach other tests' tenants are missing."""

    def __init__(self, api: ControlApi) -> None:  # not the parent's: this one is running already
        self.port, self.console = api.port, api.console
        made = api.admin("POST", "/v1/admin/tenants", {"name": f"test-{secrets.token_hex(8)}"})
        self.tenant_id: str = made["tenant_id"]
        self.admin_key: str = made["admin_key"]
        self.admin("POST", "/v1/policies", POLICY)

    def call(self, method: str, path: str, body: object = None, **options: Any) -> Answer:
        of_this = f"/v1/admin/tenants/{self.tenant_id}"
        if path.startswith("/v1/admin/") and not path.startswith(of_this):
            _refuse(path)
        return super().call(method, path, body, **options)

    @property
    def settings(self) -> Settings:
        _refuse("settings")

    def start(self) -> NoReturn:
        _refuse("start")

    def stop(self) -> NoReturn:
        _refuse("stop")

    def __getattr__(self, name: str) -> Any:
        _refuse(name)


def _refuse(name: str) -> NoReturn:
    raise LookupError(
        f"`{name}` belongs to an installation that other tests share: use `fresh` or `either`"
    )


@contextmanager
def new_tenant(api: ControlApi) -> Iterator[SharedApi]:
    """Yield a new tenant. It is deactivated afterwards, so that the service's loops skip it."""
    made = SharedApi(api)
    try:
        yield made
    finally:
        api.admin("DELETE", f"/v1/admin/tenants/{made.tenant_id}")
