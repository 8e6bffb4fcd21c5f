"""Brings `nft`, `iptables` and `ip` into a network namespace, on a machine that has none installed.

The product looks for them in fixed folders. So a test's namespace has its own mounts, where one of
those folders is the one with the fetched programs.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

from tests.programs import sources

_FETCHED = sources.place("nft").parent
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin:{_FETCHED}"
WITH_PROGRAMS = (
    ["sh", "-c", 'mount --bind "$0" /usr/local/sbin && exec "$@"', str(_FETCHED)]
    if _FETCHED.exists()
    else []
)
"""Begins a command in a mount namespace of its own, whose product finds the fetched programs."""


def tool(name: str) -> str | None:
    """Return the path of an installed or fetched program."""
    return shutil.which(name, path=PATH)


@functools.cache
def possible(*tools: str) -> bool:
    """Return whether this process may make namespaces and has all these programs."""
    if os.geteuid() != 0 or not all(map(tool, (*tools, "ip", "unshare", "nsenter", "setpriv"))):
        return False
    cable = ["ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"]
    tried = ["unshare", "--net", "--mount", *WITH_PROGRAMS, *cable]
    environ = os.environ | {"PATH": PATH}
    return not subprocess.run(tried, env=environ, capture_output=True, check=False).returncode
