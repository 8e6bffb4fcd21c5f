"""Which ports are free. Asks the system by binding each for an instant, and lets it go again."""

from __future__ import annotations

import socket

from deploy.local.settings import ENVIRONMENT, Address, UpSettings, option

WHO = {
    "control_listen": "the control API",
    "sidecar_listen": "the sidecar",
    "source_listen": "the sidecar, for the sample data source",
    "chroma_listen": "the sample data source",
}


class Taken(Exception):
    """ports that something else listens on; a line each, with the setting that moves it"""


def settle(settings: UpSettings) -> UpSettings:
    """The settings with every port 0 replaced by a free one; `Taken` names all that can't be had.

    Between this and the child's own binding another process may come first: then the child says so
    itself, and ends.
    """
    complaints: list[str] = []
    held: list[socket.socket] = []  # all at once, so that no two are given the same port
    chosen: dict[str, Address] = {}
    for name, address in settings.addresses().items():
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        probe = socket.socket(family)
        held.append(probe)
        # A port whose last connections are still fading out is free to us, as it is to the child.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            complaints.append(
                f"{WHO[name]} can't listen on `{address}`: {error.strerror or error}; choose "
                f"another with {option(name)} HOST:PORT or {ENVIRONMENT[name]}"
            )
        else:
            chosen[name] = Address(address.host, probe.getsockname()[1])
    for probe in held:
        probe.close()
    if complaints:
        raise Taken("\n".join([*complaints, "or let all four be chosen: sluice up --free-ports"]))
    return UpSettings(settings.data_dir, **chosen)
