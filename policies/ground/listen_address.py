"""A listening address, parsed from a setting. Opens nothing."""

from dataclasses import dataclass
from ipaddress import ip_address

EVERY = "*"
"""The host that stands for every address of this machine, of both IP versions."""
EVERY_HOSTS = ("0.0.0.0", "::")  # noqa: S104  # nothing is bound by this
"""The two hosts of `EVERY`. Each needs a socket of its own: `::` takes IPv4 only where the system's
settings let it."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A host and a port; with port 0 the system chooses one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "ListenAddress":
        """Parse `127.0.0.1:8700`, `[::1]:8700` or `*:8700`; anything else raises `ValueError`."""
        host, colon, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        # `isdigit` alone accepts `²`, which `int` refuses. The length bounds the work of `int`.
        number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 65536
        if not colon or not bare or number > 65535:
            raise ValueError(f"`{text}` is not host:port")
        if ":" in bare and bare == host:
            raise ValueError(f"`{text}`: an IPv6 address needs brackets, as in [::1]:8700")
        if bare == EVERY and not number:
            # The system would choose a different port for each IP version.
            raise ValueError(
                f"`{text}` needs a port: for the host `*`, the system can't choose one"
            )
        return cls(bare, number)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts to listen on, each with its own socket: two for `*`. Of these two, one is
        enough: the other's IP version may be missing on this machine."""
        return EVERY_HOSTS if self.host == EVERY else (self.host,)

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach it. False for a name other than `localhost`, which
        may resolve to any address."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
