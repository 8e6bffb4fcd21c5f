"""Keys that were made elsewhere: every replica of a cluster mounts one Secret, and none makes its
own."""

from __future__ import annotations

import base64
import json
import os
from http.client import HTTPConnection
from pathlib import Path

import pytest

from control_api.log import log_key
from control_api.tenants.bootstrap import fresh_keys
from policies.ground.keys import well_formed
from policies.ground.process.secret_file import UnusableFile, read_mounted
from tests.support.control_api_process import ControlApiProcess


def mounted(folder: Path, keys: dict[str, bytes]) -> Path:
    """A folder as the kubelet mounts a Secret: links to files of root's that the group may read."""
    data = folder / "..2026_11_22_10_00_00.1"
    data.mkdir(parents=True)
    (folder / "..data").symlink_to(data.name)
    for name, content in keys.items():
        (data / name).write_bytes(content)
        (data / name).chmod(0o400 if os.geteuid() else 0o440)
        (folder / name).symlink_to(f"..data/{name}")
    return folder


@pytest.mark.deep(
    stands_in="tests/control_api/tenants/test_bootstrap.py::test_two_starts_with_one_secret_are_one_installation"
)
def test_two_replicas_with_one_secret_are_one_installation(tmp_path: Path) -> None:
    keys = fresh_keys(os.urandom)
    folder = mounted(tmp_path / "keys", keys)
    database = f"sqlite+aiosqlite:///{tmp_path / 'shared.db'}"
    for replica in ("one", "two"):
        (tmp_path / replica).mkdir()
        process = ControlApiProcess(
            tmp_path / replica, SLUICE_DATABASE_URL=database, SLUICE_KEYS_DIR=str(folder)
        )
        try:
            connection = HTTPConnection("127.0.0.1", process.ready(), timeout=30)
            connection.request("GET", "/v1/keys", headers={"X-API-Key": keys["admin.key"].decode()})
            answer = json.load(connection.getresponse())
            connection.close()
        finally:
            process.process.terminate()
            assert process.ended() == 0
        assert [each["name"] for each in answer] == ["first admin"]
        # Neither key is anywhere but in the Secret.
        data = tmp_path / replica / "data"
        assert not [*data.glob("log.key"), *data.glob("first-start.json")]


def test_fresh_keys_are_well_formed_and_usable(tmp_path: Path) -> None:
    keys = fresh_keys(os.urandom)
    assert well_formed(keys["admin.key"].decode())
    assert well_formed(keys["superadmin.key"].decode())
    assert keys["admin.key"] != keys["superadmin.key"]
    folder = mounted(tmp_path / "keys", keys)
    ring = log_key.open_or_make(tmp_path, folder)
    assert base64.urlsafe_b64encode(ring.signer.seed()).rstrip(b"=").decode() in keys[
        "log.key"
    ].decode().replace("+", "-").replace("/", "_")


@pytest.mark.parametrize("mode", [0o444, 0o460, 0o404, 0o601])
def test_a_mounted_key_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "log.key"
    path.write_bytes(log_key.fresh())
    path.chmod(mode)
    with pytest.raises(UnusableFile, match="accessible to other users"):
        read_mounted(path)


@pytest.mark.deep(
    stands_in="tests/control_api/tenants/test_bootstrap.py::test_a_mounted_file_without_a_key_ends_the_start"
)
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"admin.key": b"slc_mistyped"}, "holds no API key of Sluice"),
        ({"admin.key": b"\xff\xfe"}, "holds no API key of Sluice"),
        ({"log.key": b""}, "holds no signing key"),
    ],
)
def test_a_secret_of_other_content_ends_the_start(
    tmp_path: Path, changed: dict[str, bytes], said: str
) -> None:
    folder = mounted(tmp_path / "keys", {**fresh_keys(os.urandom), **changed})
    process = ControlApiProcess(tmp_path, SLUICE_KEYS_DIR=str(folder))
    assert process.ended() == 1
    assert said in process.said()
    assert "mistyped" not in process.said()


def test_the_keys_of_a_cluster_are_not_rotated_in_its_mount(tmp_path: Path) -> None:
    folder = mounted(tmp_path / "keys", fresh_keys(os.urandom))
    process = ControlApiProcess(tmp_path, "rotate-key", SLUICE_KEYS_DIR=str(folder))
    assert process.ended() == 1
    assert "rotate a copy" in process.said()
