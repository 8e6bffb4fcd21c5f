"""A name in the settings' `hosts`: exact, or every name below one. Pure."""

from typing import NamedTuple

from policies.ground.errors import Malformed
from sidecar.http.authority import Authority, authority, canonical_host


class HostPattern(NamedTuple):
    """An entry of `hosts`: a name, or with `wild` every name below it. `port` is None for any."""

    name: str
    port: int | None
    wild: bool

    @classmethod
    def parse(cls, text: str) -> "HostPattern":
        """Parses `name` or `*.name`, either with a port. Raises `Malformed`."""
        wild = text.startswith("*.")
        name = text[2:] if wild else text
        # A colon inside the brackets of an IPv6 address doesn't begin a port.
        if ":" in name.rpartition("]")[2]:
            host, port = authority(name)
            found = cls(host, port, wild)
        else:
            found = cls(canonical_host(name), None, wild)
        if wild and (":" in found.name or found.name.rpartition(".")[2].isdigit()):
            raise Malformed("an address has no names below it")
        return found

    def covers(self, host: str) -> bool:
        """Whether it is a pattern of `host`, whatever the port."""
        return host.endswith(f".{self.name}") if self.wild else host == self.name

    def matches(self, host: Authority) -> bool:
        """Whether it is a pattern of this host and port."""
        return self.covers(host.host) and self.port in (None, host.port)
