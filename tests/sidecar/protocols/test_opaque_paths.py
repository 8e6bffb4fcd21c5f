"""`paths: opaque`: an escaped slash is part of its segment, and never becomes a slash."""

from pathlib import Path

import pytest

from policies.ground.addresses import ListenAddress
from policies.ground.errors import Malformed
from sidecar.http.request_target import canonical
from sidecar.settings.model import RestRule
from tests.sidecar.proxy.raw_client import ask, get
from tests.support.ports import free_port
from tests.support.proxy import policy, proxy_setup, sidecar, source
from tests.support.scripted_source import answer, data_source

HOSTILE = [
    "/open/%2e%2e%2fshut", "/open%2F..%2Fshut", "/open/..%2Fshut", "/open/..%2fshut",
    "/open/%2E%2E%2F%2e%2e", "/open%2F%2e%2Fshut", "/open%2F", "/%2Fshut", "/open%2F%2Fshut",
    "/open%252Fshut", "/open%252fshut", "/open%25%32%46shut", "/open%2F%252e%252e%2Fshut",
    "/open%2f..;a%2fshut", "/open%2F..%5Cshut", "/open%5Cshut", "/open%2F%5Cshut", "/open%2F%00",
    "/open/../shut%2Fa", "/open%2Fa/../../shut", "//shut%2Fa", "/open%2", "/open%2Fa#%2F",
    "/open%c0%afshut", "/open%2F%c0%ae%c0%ae%2Fshut", "/open%2Fa\\..", "http://x/open%2Fa",
]  # fmt: skip


@pytest.mark.parametrize("raw", HOSTILE)
def test_a_target_that_could_be_read_as_another_path_is_refused(raw: str) -> None:
    with pytest.raises(Malformed):
        canonical(raw, opaque=True)


@pytest.mark.parametrize(
    ("raw", "path", "segments"),
    [
        ("/@scope%2fname", "/@scope%2Fname", ("@scope/name",)),
        ("/%40scope%2Fn%61me/-/x.tgz", "/@scope%2Fname/-/x.tgz", ("@scope/name", "-", "x.tgz")),
        ("/a%2Fb%2fc/?x=%2F", "/a%2Fb%2Fc/", ("a/b/c", "")),
        ("/a/b", "/a/b", ("a", "b")),
    ],
)
def test_a_slash_in_a_segment_has_one_spelling(
    raw: str, path: str, segments: tuple[str, ...]
) -> None:
    target = canonical(raw, opaque=True)
    assert (target.path, target.segments) == (path, segments)
    assert canonical(target.forwarded, opaque=True) == target
    if path != "/a/b":
        with pytest.raises(Malformed, match="escaped slash"):
            canonical(raw)


async def test_an_escaped_slash_is_judged_and_forwarded_within_its_segment(tmp_path: Path) -> None:
    may = policy(
        allowed_sources=("rest://kb/open*", "named/*"), denied_sources=("rest://kb/shut*",)
    )
    routes = (
        RestRule("GET", "/closed/**", "deny"),
        RestRule("GET", "/id/{name}", "retrieve", "named/{name}"),
    )
    async with proxy_setup(tmp_path, may, paths="opaque", routes=routes) as front:
        for target in ("/open%2fa", "/id/x%2Fy", "/open/b?p=%2f"):
            assert (await front.ask(get(target))).status == 200
        # Neither is the route `/closed/**` or `/id/{name}`, so the whole path is judged.
        for target in ("/closed%2Fa", "/id%2Fx", "/shut%2Fa"):
            assert (await front.ask(get(target))).status == 403
        assert front.upstream.targets == ["/open%2Fa", "/id/x%2Fy", "/open/b?p=%2f"]
        assert [each[::2] for each in await front.sidecar.decisions()] == [
            ("ALLOW", "rest://kb/open%2Fa"),
            ("ALLOW", "named/x%2Fy"),
            ("ALLOW", "rest://kb/open/b"),
            ("DENY", "rest://kb/closed%2Fa"),
            ("DENY", "rest://kb/id%2Fx"),
            ("DENY", "rest://kb/shut%2Fa"),
        ]


async def test_a_source_with_escaped_slashes_changes_nothing_for_its_neighbours(
    tmp_path: Path,
) -> None:
    """Two sources on one address: only the opaque one gets escaped slashes, and none leads past
    the path or host that tells the two apart."""
    listen = ListenAddress("127.0.0.1", free_port())
    async with (
        data_source(answer(body=b"of kb")) as kb,
        data_source(answer(body=b"of crm")) as crm,
        sidecar(tmp_path) as made,
    ):
        proxy = made.proxy(
            (
                source(kb.port, listen=listen, path="/kb", paths="opaque"),
                source(crm.port, alias="crm", listen=listen, path="/kb/crm"),
            )
        )
        await proxy.start()
        try:
            statuses = {}
            for target in (
                "/kb/a%2fb", "/kb/crm%2Fa", "/kb%2Fcrm/a", "/kb%2Fa", "/kb/crm/a%2Fb",
                "/kb/x%2F..%2Fcrm/a", "/kb/%2e%2e%2fkb%2fcrm", "/kb/crm/..%2fa", "/kb/crm/a",
            ):  # fmt: skip
                statuses[target] = (await ask(listen.port, get(target))).status
        finally:
            await proxy.close(1)
    assert statuses == {
        "/kb/a%2fb": 200,
        "/kb/crm%2Fa": 200,  # one segment, which isn't `crm`: it is of `kb`
        "/kb%2Fcrm/a": 403,
        "/kb%2Fa": 403,
        "/kb/crm/a%2Fb": 400,
        "/kb/x%2F..%2Fcrm/a": 400,
        "/kb/%2e%2e%2fkb%2fcrm": 400,
        "/kb/crm/..%2fa": 400,
        "/kb/crm/a": 200,
    }
    assert (kb.targets, crm.targets) == (["/a%2Fb", "/crm%2Fa"], ["/a"])
