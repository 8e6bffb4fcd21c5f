"""The ports that `sluice up` chooses: where they lie, and that no other process gets them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from deploy.local import ports
from deploy.local.ports import PortsTaken, hold_ports
from deploy.local.settings import ENVIRONMENT, Address, UpSettings, read
from tests.support.ports import free_port

ANY = Address("127.0.0.1", 0)


def settings(control: Address = ANY, sidecar: Address = ANY) -> UpSettings:
    return UpSettings(Path("data"), control, sidecar, ANY, ANY)


def chosen(settings: UpSettings) -> set[int]:
    return {address.port for address in settings.addresses().values()}


def listening(port: int) -> socket.socket:
    """A server as a child starts one: `create_server` sets SO_REUSEADDR."""
    return socket.create_server(("127.0.0.1", port))


def ephemeral(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None) -> None:
    """Let the system tell this of its ephemeral range; nothing if that is None."""
    file = tmp_path / "ip_local_port_range"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(ports, "EPHEMERAL_RANGE", file)


def test_free_ports_are_chosen_for_all_but_options(tmp_path: Path) -> None:
    with listening(0) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        environ = dict.fromkeys(list(ENVIRONMENT.values())[1:], address)
        options: dict[str, str | None] = {"data_dir": str(tmp_path)}
        with pytest.raises(PortsTaken) as refused, hold_ports(read(options, environ)):
            pass
        assert str(refused.value).count("can't listen on") == 4
        assert "or let `sluice up --free-ports` choose" in str(refused.value)
        with (
            pytest.raises(PortsTaken) as refused,
            hold_ports(read(options, environ), by_make=True),
        ):
            pass
        assert "or let `make run ARGS=--free-ports` choose" in str(refused.value)
        with hold_ports(read(options, environ, free_ports=True)) as held:
            ports_ = chosen(held.settings)
        assert len(ports_ - {taken.getsockname()[1]}) == 4
        options["control_listen"] = address
        named = read(options, environ, free_ports=True)
        with pytest.raises(PortsTaken) as refused, hold_ports(named):
            pass
        assert str(refused.value).count("can't listen on") == 1


@pytest.mark.parametrize(
    ("text", "first"),
    [("20000\t60999\n", 20000), (None, 32768), ("", 32768), ("none\n", 32768)],
)
def test_a_chosen_port_is_below_the_ephemeral_range(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None, first: int
) -> None:
    ephemeral(monkeypatch, tmp_path, text)
    with hold_ports(settings()) as held:
        assert len(chosen(held.settings)) == 4
        assert all(10_000 <= port < first for port in chosen(held.settings))


def test_without_a_port_below_the_ephemeral_range_the_system_chooses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ephemeral(monkeypatch, tmp_path, "1024 65535")
    with hold_ports(settings()) as held:
        assert len(chosen(held.settings)) == 4


def test_two_launchers_at_once_hold_different_ports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A range of so few ports that they would collide if one could be held twice.
    ephemeral(monkeypatch, tmp_path, "10012 60999")
    with hold_ports(settings()) as one, hold_ports(settings()) as other:
        assert not chosen(one.settings) & chosen(other.settings)


def test_no_server_gets_a_held_port_before_it_is_released() -> None:
    with hold_ports(settings()) as held:
        port = held.settings.sidecar_listen.port
        with pytest.raises(OSError, match="in use"):
            listening(port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        held.release("sidecar_listen", "source_listen")
        listening(port).close()
        with pytest.raises(OSError, match="in use"):
            listening(held.settings.control_listen.port)
    listening(held.settings.control_listen.port).close()


def test_a_chosen_port_is_not_one_that_another_setting_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ephemeral(monkeypatch, tmp_path, "10004 60999")
    with hold_ports(settings(sidecar=Address("127.0.0.1", 10_003))) as held:
        assert held.settings.sidecar_listen.port == 10_003
        assert len(chosen(held.settings)) == 4


def test_a_refused_address_leaves_no_port_held() -> None:
    port = free_port()
    with listening(free_port()) as taken:
        wanted = settings(Address("127.0.0.1", port), Address(*taken.getsockname()))
        with (
            pytest.raises(PortsTaken, match="the sidecar can't listen on") as refused,
            hold_ports(wanted),
        ):
            pass
    assert "the control API" not in str(refused.value)
    listening(port).close()


def test_a_host_of_another_machine_is_refused() -> None:
    with (
        pytest.raises(PortsTaken, match=r"can't listen on `192\.0\.2\.1:0`"),
        hold_ports(settings(Address("192.0.2.1", 0))),
    ):
        pass
