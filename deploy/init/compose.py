"""Makes the files for a host with Docker Compose or Podman: `compose.yaml`, its `.env`, samples and
secrets.

The files are templates in `deploy/compose`, with placeholders such as `@NAME@`. All passwords are
derived from one seed, so that a second run writes a missing file with the same content as before.
No container is started or contacted.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import secrets
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shlex import quote

from deploy.init.files import SECRET, NewFile, write
from policies.ground.distribution import DISTRIBUTION

PACKAGES = Path(__file__).resolve().parents[2]
TEMPLATES = PACKAGES / "deploy/compose"
KEYS = "secrets/keys"
SEED = "secrets/seed"
USER = 20102
"""The id of the user that the containers run as if root runs `sluice init`, since the services
should not run as root."""
# Template: where it goes. The agent and the documents are samples.
PLACES = {
    "compose.yaml": "compose.yaml",
    "env": ".env",
    "agent.py": "agent.py",
    "source/handbook/returns.txt": "source/handbook/returns.txt",
    "source/products/kettle.txt": "source/products/kettle.txt",
    "source/payroll/grades.txt": "source/payroll/grades.txt",
    "prometheus.yaml": "monitoring/prometheus/prometheus.yaml",
    "../prometheus/rules.yaml": "monitoring/prometheus/rules.yaml",
    "../grafana/fleet.json": "monitoring/grafana/dashboards/fleet.json",
    "../grafana/agent.json": "monitoring/grafana/dashboards/agent.json",
    "../grafana/provisioning/datasources.yaml": (
        "monitoring/grafana/provisioning/datasources/sluice.yaml"
    ),
    "../grafana/provisioning/dashboards.yaml": (
        "monitoring/grafana/provisioning/dashboards/sluice.yaml"
    ),
}
SECRETS = {
    "roles.sql": "secrets/roles.sql",
    "redis.acl": "secrets/redis.acl",
    "sidecar.yaml": "secrets/sidecar.yaml",
}
POLICY = "policies/default/retail/customer_support.yaml"
# Secret: its content, with the passwords filled in.
CONTENTS = {
    "postgres-password": "@SUPERUSER_PASSWORD@",
    "database-url": "postgresql+asyncpg://sluice:@SERVICE_PASSWORD@@postgres/sluice",
    "owner-database-url": "postgresql+asyncpg://sluice_owner:@OWNER_PASSWORD@@postgres/sluice",
    "grafana-password": "@GRAFANA_PASSWORD@",
    # A name that no other program on this host knows: browsers send a host's cookies to all ports.
    "console-url": "http://@CONSOLE_NAME@.localhost:8700",
    "redis-url": "redis://sluice-control:@REDIS_CONTROL_PASSWORD@@redis:6379/0",
}
# Only the owner may enter these. The containers write to those in `data`, and to `secrets/agent`.
PRIVATE = (
    "secrets",
    "secrets/agent",
    "data",
    *(f"data/{name}" for name in ("postgres", "checkpoints", "sidecar", "prometheus", "grafana")),
)


def prepare(folder: Path) -> bytes:
    """Create the private folders and the seed of all passwords, unless they exist. Returns the
    seed. Raises `CannotWrite` or `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PRIVATE:
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    write(folder, [NewFile(SEED, secrets.token_hex(32), SECRET)])
    return (folder / SEED).read_bytes()


def files(seed: bytes) -> Iterator[NewFile]:
    """Yield all files of an installation, with passwords derived from `seed`."""
    for name, place in PLACES.items():
        yield NewFile(place, _filled((TEMPLATES / name).read_text("utf-8"), seed))
    sample = PACKAGES / "policies/definitions/default/retail/customer_support.yaml"
    yield NewFile(POLICY, sample.read_text("utf-8"))
    for name, place in SECRETS.items():
        yield NewFile(place, _filled((TEMPLATES / name).read_text("utf-8"), seed), SECRET)
    for name, content in CONTENTS.items():
        yield NewFile(f"secrets/{name}", _filled(content, seed), SECRET)


def hand_over(folder: Path) -> None:
    """Make the containers' user the owner of the files that it needs, if root has written them."""
    if os.geteuid() != 0:
        return
    for name in ("secrets", "data"):
        for path in [folder / name, *(folder / name).rglob("*")]:
            # Files that PostgreSQL and the sidecar wrote stay theirs, and links are left alone.
            if path.lstat().st_uid == 0 and not path.is_symlink():
                os.chown(path, USER, USER)


def _filled(template: str, seed: bytes) -> str:
    def value(found: re.Match[str]) -> str:
        match found[1]:
            case "UID":
                return str(os.geteuid() or USER)
            case "GID":
                return str(os.getegid() if os.geteuid() else USER)
            case "VERSION":
                return _version()
            case "CONSOLE_NAME":
                return hmac.digest(seed, b"CONSOLE_NAME", "sha256").hex()[:32]
        # URL-safe base64: no character that a URL, SQL or an access list would take for its own.
        return base64.urlsafe_b64encode(hmac.digest(seed, found[1].encode(), "sha256")).decode()[
            :40
        ]

    return re.sub(r"@([A-Z]+(?:_[A-Z]+)*)@", value, template)


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "latest"


def next_steps(folder: Path) -> str:
    """Return the operator's next steps as text, with commands to paste."""
    return f"""\
Next steps (`podman-compose` takes the same words):

cd {quote(str(folder))}
docker compose up --detach
docker compose --profile agent run --rm agent handbook/returns.txt payroll/grades.txt

# the console; sign in with the key in {KEYS}/admin.key
echo "$(cat secrets/console-url)/console"

The first document is allowed, the second denied. Keep a copy of {folder}/secrets: without
{KEYS}/log.key, a backup of the database can't be restored.
"""
