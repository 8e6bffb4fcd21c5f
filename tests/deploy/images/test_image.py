"""The images that `make images` built: what is in them, and that they run with no rights at all."""

from __future__ import annotations

import json
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from policies import __version__
from policies.ground.keys import make_key
from tests.deploy.images import containers
from tests.servers import need

IMAGES = ("sidecar", "control")
USER = 20102
SHELLS = {"sh", "bash", "dash", "busybox", "ash", "zsh", "ksh"}
MEGABYTES_SIDECAR = 80
# Exit codes with which podman says that it could not run the command at all.
PODMANS_OWN = (125, 126, 127)
SBOM = "/usr/share/sluice/sbom.cdx.json"
LIST_INSTALLED = (
    "import importlib.metadata as m, json;"
    "print(json.dumps([[d.metadata['Name'], d.version] for d in m.distributions()]))"
)
OWN_STATUS = "print(open('/proc/1/status').read())"
ASK = (
    "import sys, urllib.request as u;"
    "print(u.urlopen('http://127.0.0.1:8710' + sys.argv[1]).read().decode())"
)


@pytest.fixture(scope="module", params=IMAGES)
def name(request: pytest.FixtureRequest) -> str:
    built: str = request.param
    containers.image(built)
    return built


@pytest.fixture(scope="module")
def root(name: str) -> Iterator[Path]:
    with containers.mounted(containers.image(name)) as folder:
        yield folder


def test_the_image_names_itself_and_its_user(name: str) -> None:
    found = containers.inspect(containers.image(name))
    assert found["User"] == f"{USER}:{USER}"
    assert found["Config"]["Entrypoint"] == ["sluice"]
    labels = found["Labels"]
    assert labels["org.opencontainers.image.version"] == __version__
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.revision"]


def test_no_file_helps_an_intruder(root: Path) -> None:
    shells, special, writable, foreign = [], [], [], []
    for path in root.rglob("*"):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            continue
        if path.name in SHELLS:
            shells.append(path)
        if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
            special.append(path)
        if status.st_mode & stat.S_IWOTH:
            writable.append(path)
        if status.st_uid != 0:
            foreign.append(str(path.relative_to(root)))
    assert (shells, special, writable) == ([], [], [])
    # Of all files, the user owns its data directory alone: it can't change what it runs.
    assert foreign == ["var/lib/sluice"]


def test_only_what_the_service_needs_is_installed(name: str) -> None:
    installed = {name.lower() for name, _ in _installed(name)}
    assert "pip" not in installed
    assert "setuptools" not in installed
    if name == "sidecar":
        assert not installed & {"sqlalchemy", "pydantic", "alembic", "asyncpg", "aiosqlite"}


def test_the_bill_of_materials_lists_what_is_installed(name: str, root: Path) -> None:
    bill = json.loads((root / SBOM.lstrip("/")).read_text())
    listed = {
        (each["name"], each["version"])
        for each in bill["components"]
        if each["purl"].startswith("pkg:pypi/")
    }
    normal = {
        (found.lower().replace("_", "-").replace(".", "-"), v) for found, v in _installed(name)
    }
    assert listed == normal
    packages = {each["name"] for each in bill["components"] if "pkg:deb/" in each["purl"]}
    assert packages == {path.name for path in (root / "var/lib/dpkg/status.d").iterdir()}
    assert {"python3.11-minimal", "libc6", "libssl3"} <= packages


def _installed(name: str) -> list[tuple[str, str]]:
    return [tuple(each) for each in json.loads(containers.python(name, LIST_INSTALLED))]


def test_every_module_of_the_sidecar_can_be_imported() -> None:
    program = (
        "import importlib, pkgutil, sys, sluice, pathlib;"
        "sys.path.insert(0, str(pathlib.Path(sluice.__file__).parent / 'lib'));"
        "import policies, sidecar;"
        "names = [m.name for p in (policies, sidecar)"
        " for m in pkgutil.walk_packages(p.__path__, p.__name__ + '.')"
        " if not m.name.endswith('__main__')];"
        "[importlib.import_module(name) for name in names];"
        "import ssl; assert ssl.create_default_context().get_ca_certs();"
        "import zoneinfo; zoneinfo.ZoneInfo('Europe/Berlin');"
        "print(len(names))"
    )
    assert int(containers.python("sidecar", program)) > 100


def test_the_commands_of_each_image_start() -> None:
    assert "sluice sidecar" in containers.run("sidecar", "sidecar", "--help")
    assert "nftables v" in containers.run("sidecar", "--version", more=("--entrypoint=nft",))
    assert "sluice control" in containers.run("control", "control", "--help")


def test_the_init_container_redirects_with_net_admin_alone() -> None:
    """Its command sets the rules in a network of its own, and proves them."""
    options = [each for each in containers.options() if not each.startswith("--network")]
    rights = ("--cap-add=NET_ADMIN", "--user=0:0")
    command = ("redirect", "--port", "8712", "--sidecar-user", str(USER))
    image = containers.image("sidecar")
    answer = containers.podman(*options, *containers.CONFINED, *rights, image, *command)
    if answer.returncode in PODMANS_OWN:
        pytest.skip(f"podman gives containers no network here: {answer.stderr.strip()}")
    assert answer.returncode == 0, answer.stderr
    assert "lands on port 8712" in answer.stdout


def test_the_sidecars_image_is_small(tmp_path: Path) -> None:
    # In this form every layer is compressed, as it is in a registry.
    layout = tmp_path / "layout"
    answer = containers.podman("push", "-q", containers.image("sidecar"), f"oci:{layout}:sidecar")
    assert answer.returncode == 0, answer.stderr
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(_blob(layout, index["manifests"][0]["digest"]))
    assert len(manifest["layers"]) == 3
    assert all(layer["mediaType"].endswith("gzip") for layer in manifest["layers"])
    size = sum(layer["size"] for layer in manifest["layers"])
    assert size < MEGABYTES_SIDECAR * 1_000_000


def _blob(layout: Path, digest: str) -> bytes:
    return (layout / "blobs" / digest.replace(":", "/")).read_bytes()


def test_a_confined_sidecar_serves_with_a_read_only_root(tmp_path: Path) -> None:
    """It has no control API, so it is alive and not ready, as it should be."""
    settings = tmp_path / "sluice"
    settings.mkdir()
    (settings / "sidecar.key").write_text(make_key(bytes(range(24))))
    (settings / "sidecar.yaml").write_text(
        "control: http://127.0.0.1:8700\nkey_file: sidecar.key\nlisten: 127.0.0.1:8710\n"
        "cache: /var/lib/sluice/cache\n"
        "spool: {dir: /var/lib/sluice/spool, max_bytes: 33554432, segment_bytes: 1048576}\n"
    )
    container = f"sluice-test-{time.monotonic_ns()}"
    command = [str(need("podman")), *containers.options(), *containers.CONFINED]
    command += ["--name", container, "--volume", f"{settings}:/etc/sluice:ro"]
    command += ["--tmpfs", "/var/lib/sluice:rw,mode=0700,U", containers.image("sidecar")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            answer = _ask(container, "/health", process)
            assert json.loads(answer)["version"] == __version__
            status = containers.podman("exec", container, "python", "-c", OWN_STATUS).stdout
            fields = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
            assert fields["Uid"].split() == [str(USER)] * 4
            assert int(fields["CapEff"], 16) == 0
            assert fields["NoNewPrivs"].strip() == "1"
        finally:
            containers.podman("stop", "--time", "20", container)
        assert process.wait(timeout=30) == 0


def _ask(container: str, path: str, process: subprocess.Popen[bytes]) -> str:
    while process.poll() is None:
        answer = containers.podman("exec", container, "python", "-c", ASK, path)
        if answer.returncode == 0:
            return answer.stdout
    output = process.stdout.read() if process.stdout else b""
    raise AssertionError(output.decode(errors="replace"))
