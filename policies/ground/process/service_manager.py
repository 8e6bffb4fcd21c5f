"""Tells systemd that the service serves. Knows the protocol of sd_notify(3) and nothing else."""

import socket


def notify_ready(address: str | None) -> None:
    """Send `READY=1` to the socket at `address`, systemd's NOTIFY_SOCKET; None sends nothing.
    Raises `OSError`: systemd would wait for the message, and then stop the service."""
    if not address:
        return
    # `@` stands for the zero byte of an abstract socket (sd_notify(3)).
    path = f"\0{address[1:]}" if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(path)
        sender.sendall(b"READY=1")
