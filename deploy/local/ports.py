"""Chooses free ports and reports taken ones, by binding each port for a moment."""

from __future__ import annotations

import socket

from deploy.local.settings import ENVIRONMENT, Address, UpSettings, option

OWNERS = {
    "control_listen": "the control API",
    "sidecar_listen": "the sidecar",
    "source_listen": "the sidecar, for the sample data source",
    "chroma_listen": "the sample data source",
}


class PortsTaken(Exception):
    """ports that can't be bound, one line each, with the setting that changes it"""


def choose_ports(settings: UpSettings) -> UpSettings:
    """The settings with every port 0 replaced by a free one. Raises `PortsTaken` with all that
    can't be bound.

    Another process may take a port before the child binds it; the child then reports that and ends.
    """
    complaints: list[str] = []
    held: list[socket.socket] = []  # all open at once, so that no two get the same port
    chosen: dict[str, Address] = {}
    for name, address in settings.addresses().items():
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        probe = socket.socket(family)
        held.append(probe)
        # A port with connections in TIME_WAIT can be bound, here as by the child.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            complaints.append(
                f"{OWNERS[name]} can't listen on `{address}`: {error.strerror or error}; choose "
                f"another address with {option(name)} HOST:PORT or {ENVIRONMENT[name]}"
            )
        else:
            chosen[name] = Address(address.host, probe.getsockname()[1])
    for probe in held:
        probe.close()
    if complaints:
        advice = "or let `sluice up --free-ports` choose all of them"
        raise PortsTaken("\n".join([*complaints, advice]))
    return UpSettings(settings.data_dir, **chosen)
