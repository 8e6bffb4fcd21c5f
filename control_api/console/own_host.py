"""Says whether a request is for the console by its own host, so that a cookie of another host opens
nothing. Knows no page.

A page on the web can make its own name resolve to this service (DNS rebinding). Browsers then take
its answers for that page's; the name stays in `Host`.
"""

import hmac
import re
from ipaddress import IPv6Address, ip_address

from aiohttp import web

from policies.ground.errors import Forbidden

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.IGNORECASE).fullmatch


def require_own_host(request: web.BaseRequest, own: str | None) -> None:
    """Refuses a request for another host than `own`, and every one if that is None. Raises
    `Forbidden`."""
    if own is None:
        raise Forbidden(
            "the console has no address yet: by TLS it needs SLUICE_CONSOLE_URL, the address that "
            "browsers see, with a host on which nothing else listens"
        )
    hosts = request.headers.getall("Host", ())
    if len(hosts) != 1 or not _is_own(hosts[0], own):
        raise Forbidden(
            "this is not the address of the console. It is under one host alone, since browsers "
            "send a host's cookies to every port of it. That host is SLUICE_CONSOLE_URL's, which "
            "must be the address that browsers see, and a proxy must pass their `Host` on. Without "
            "the setting it is the name in the file `console-host` in the data directory, on this "
            "machine alone; `sluice up` prints it, and so does a sign-in link"
        )


def _is_own(text: str, own: str) -> bool:
    found = _HOST(text)
    # The name may be a secret; the comparison must not tell how much of it was right.
    return found is not None and hmac.compare_digest(
        _canonical(found[1]).encode(), _canonical(own).encode()
    )


def _canonical(host: str) -> str:
    """Lower case, without a final dot; an address in its shortest form, without brackets."""
    name = host.lower().removesuffix(".").strip("[]").partition("%")[0]
    try:
        address = ip_address(name)
    except ValueError:
        return name
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    return str(address)
