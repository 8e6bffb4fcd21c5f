"""The contents of each image, and the folders in which the build collects them. Pure data, shared
by the stages of the build."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

IMAGE = Path("/image")
# One folder for each layer of an image. Together they are its root file system.
SYSTEM, LIBRARIES, SLUICE = IMAGE / "system", IMAGE / "libraries", IMAGE / "sluice"
LAYERS = (SYSTEM, LIBRARIES, SLUICE)
TOOLS = Path("/tools")
WHEELS = Path("/wheel")
VENV = Path("/opt/sluice")
DATA = "var/lib/sluice"
SBOM = "usr/share/sluice/sbom.cdx.json"
# Debian's packages of an image, as its scanners look for them where no dpkg is installed.
STATUS = "var/lib/dpkg/status.d"
USER = 20102

# Python, and every shared library that its modules and our wheels load. `root.py` refuses a root in
# which a library is missing, so this list can't be too short.
PYTHON = (
    "base-files", "ca-certificates", "tzdata", "netbase", "media-types",
    "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib",
    "libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libssl3", "libffi8", "libbz2-1.0",
    "liblzma5", "libsqlite3-0", "libuuid1", "libcrypt1", "libdb5.3", "libncursesw6", "libtinfo6",
    "libreadline8", "libnsl2", "libtirpc3", "libgssapi-krb5-2", "libkrb5-3", "libk5crypto3",
    "libcom-err2", "libkrb5support0", "libkeyutils1",
)  # fmt: skip
# `sluice redirect` sets the rules of the packet filter with it.
NFT = (
    "nftables", "libnftables1", "libnftnl11", "libmnl0", "libjansson4", "libxtables12", "libgmp10",
    "libedit2", "libbsd0", "libmd0",
)  # fmt: skip


class Contents(NamedTuple):
    """The contents of one image, apart from Python and Sluice itself."""

    extras: tuple[str, ...]
    """The extras of the distribution `sluice-governance` to install."""
    packages: tuple[str, ...]
    """The names of the Debian packages to unpack."""
    left_out: str
    """The Python package of the other service, which is removed because this image does not run
    it."""


IMAGES = {
    "sidecar": Contents(("sidecar", "redis", "aws"), NFT, "control_api"),
    "server": Contents(("server", "redis", "aws", "otel", "oidc"), (), "sidecar"),
}
