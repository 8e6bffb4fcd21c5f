"""Makes the images' first layer: Debian's Python and its libraries, without dpkg, apt or a shell.

Packages are unpacked, not installed: their installation scripts would need a shell. The results of
these scripts that the image needs are made here: the bundle of CA certificates, and the user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from deploy.images.layout import DATA, PYTHON, STATUS, SYSTEM, USER

# Debian has had one tree below /usr since release 12. Some packages still name the old folders.
MERGED = ("bin", "sbin", "lib", "lib64")
# Licences stay (`copyright`); the rest is for people at a terminal, or would install more.
UNUSED = (
    "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian", "usr/share/bug",
    "usr/share/bash-completion", "usr/share/menu", "usr/share/pixmaps", "usr/share/applications",
    "usr/share/binfmts", "usr/share/base-files", "usr/share/nftables", "usr/share/common-licenses",
    "usr/share/ca-certificates", "usr/share/gcc", "usr/share/gdb", "usr/share/dict", "usr/games",
    "usr/local", "usr/src", "usr/include", "usr/sbin/update-ca-certificates", "usr/lib/systemd",
    "usr/lib/python3", "usr/lib/python3.11/ensurepip", "usr/lib/python3.11/lib2to3",
    "usr/lib/python3.11/pydoc_data", "usr/share/doc-base", "usr/share/perl5",
    "etc/update-motd.d", "etc/init.d", "etc/profile.d", "etc/skel", "etc/terminfo", "etc/dpkg",
    "home", "root", "run", "tmp", "mnt", "media", "srv", "opt", "boot", "dev", "proc", "sys", "var",
)  # fmt: skip


def main() -> int:
    """Make the images' first layer in the folder `SYSTEM`: unpack Python and its libraries, and add
    the CA certificates and the user. Returns the exit code 0."""
    unpack(PYTHON, SYSTEM)
    bundle = Path("etc/ssl/certs/ca-certificates.crt")
    (SYSTEM / bundle).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path("/") / bundle, SYSTEM / bundle)
    # Where OpenSSL looks when a program names no bundle.
    (SYSTEM / "usr/lib/ssl").mkdir(parents=True)
    (SYSTEM / "usr/lib/ssl/cert.pem").symlink_to(f"/{bundle}")
    (SYSTEM / "etc/passwd").write_text(
        f"root:x:0:0:root:/:/usr/sbin/nologin\nsluice:x:{USER}:{USER}::/{DATA}:/usr/sbin/nologin\n"
    )
    (SYSTEM / "etc/group").write_text(f"root:x:0:\nsluice:x:{USER}:\n")
    (SYSTEM / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    (SYSTEM / "etc/sluice").mkdir()
    data = SYSTEM / DATA
    data.mkdir(parents=True)
    data.chmod(0o700)
    os.chown(data, USER, USER)
    return 0


def unpack(packages: Iterable[str], root: Path) -> None:
    """Download and unpack Debian packages into `root`, and record each one where image scanners
    look for it."""
    for name in MERGED:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    records: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        # apt checks what it downloads by the hashes of the signed list of packages.
        _run("apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", *packages, cwd=scratch)
        for file in sorted(Path(scratch).glob("*.deb")):
            contents = Path(scratch, "contents.tar")
            with contents.open("wb") as output:
                subprocess.run(["dpkg-deb", "--fsys-tarfile", file], check=True, stdout=output)
            # `dpkg-deb --extract` would put a folder in the place of a link such as `/lib`.
            _run("tar", "-C", str(root), "-xf", str(contents), "--keep-directory-symlink")
            record = _run("dpkg-deb", "--field", str(file))
            records[record.split("\n", 1)[0].removeprefix("Package: ")] = record
    for unused in UNUSED:
        shutil.rmtree(root / unused, ignore_errors=True)
        (root / unused).unlink(missing_ok=True)
    for path in (root / "usr/share/doc").rglob("*"):
        if not path.is_dir() and path.name != "copyright":
            path.unlink()
    status = root / STATUS
    status.mkdir(parents=True)
    for name, record in records.items():
        (status / name).write_text(f"{record.rstrip()}\n")


def _run(*command: str, cwd: str | None = None) -> str:
    return subprocess.run(command, check=True, cwd=cwd, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    raise SystemExit(main())
