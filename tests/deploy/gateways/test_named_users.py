"""A gateway that names the user itself, as the comments of its recipe say: its word counts, and the
client's does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.gateways.gateway_programs import STARTED, gateway
from tests.deploy.gateways.protected import Protected
from tests.deploy.gateways.raw_requests import get, one, status
from tests.deploy.gateways.recipes import Change

USER = "ann@example.com"
_APPENDED = (
    f"- append: {{header: {{key: x-sluice-user, value: {USER}}}, "
    "append_action: OVERWRITE_IF_EXISTS_OR_ADD}"
)
_COMMENT = '# - append: {header: {key: x-sluice-user, value: "%DYNAMIC_METADATA(...)%"}}'
CHANGES = {
    "caddy": ("# The upstream gets", f"request_header X-Sluice-User {USER}\n\t\t#"),
    "envoy-grpc": (_COMMENT, _APPENDED),
    "envoy-http": (_COMMENT, _APPENDED),
    "haproxy": (
        "# The upstream gets",
        f"http-request set-header X-Sluice-User {USER}\n    #",
    ),
    "nginx": (
        'X-Sluice-User "";  # safety: attribution',
        f"X-Sluice-User {USER};",
    ),
    "traefik": ('X-Sluice-User: ""  # safety: attribution', f"X-Sluice-User: {USER}"),
}
"""Of each recipe, what stands in its file, and what a gateway that names the user has there."""


@pytest.mark.parametrize("name", STARTED)
def test_the_user_named_by_the_gateway_is_recorded(
    name: str, world: Protected, tmp_path: Path
) -> None:
    with gateway(name, tmp_path, world.behind, Change(changed=CHANGES[name])) as port:
        world.upstream.take()
        for fields in ((), ("X-Sluice-User: mallory",), ("baggage: sluice.user=mallory",)):
            assert status(one(port, get("/pub/a", *fields))) == 200
        seen = world.upstream.take()
        assert [world.event(each)["user_id"] for each in seen] == [USER] * 3
