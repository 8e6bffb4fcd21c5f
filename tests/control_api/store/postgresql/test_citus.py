"""The documented commands that distribute the tables with Citus, where PostgreSQL has it."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from control_api.log.verify import verify
from control_api.store.migrate import migrate
from control_api.store.postgresql.engine import GRANTS
from tests.chaos.servers import Postgres
from tests.support import postgres
from tests.support.documents import blocks
from tests.support.open_store import OTHER, TENANT, decision, opened
from tests.support.ports import free_port

TITLE = "-- distribute by tenant"
EXTENSION = "share/postgresql/*/extension/citus.control"


def documented() -> str:
    (found,) = (each.text for each in blocks("deploy/INTERNALS.md") if each.text.startswith(TITLE))
    return found


def with_citus() -> Path:
    """The programs of a PostgreSQL of the system that has Citus."""
    for control in sorted(Path("/usr").glob(EXTENSION), reverse=True):
        version = control.parents[1].name
        if (programs := Path("/usr/lib/postgresql", version, "bin")).exists():
            return programs
    pytest.skip(f"no Citus here: /usr/{EXTENSION} does not exist")


def test_every_table_is_distributed_or_a_reference() -> None:
    lists = re.findall(r"'\{([^}]*)\}'::regclass\[\]", documented())
    references, distributed = ({name.strip() for name in each.split(",")} for each in lists)
    assert references == {"installation", "log_keys"}
    assert references | distributed | {"tenants", "alembic_version"} == GRANTS.keys()


async def test_the_store_works_on_distributed_tables() -> None:
    programs = with_citus()
    with tempfile.TemporaryDirectory(prefix="sluice-citus-") as made:
        folder = Path(made)
        folder.chmod(0o711)
        server = Postgres(folder / "server", free_port(), programs)
        server.settings["shared_preload_libraries"] = "citus"
        try:
            server.make()
            service = server.url(postgres.SERVICE, server.port)
            await migrate(server.url(postgres.OWNER, server.port), service)
            commands = documented().replace("sluice_service", postgres.SERVICE)
            server.run_script(commands, "sluice")
            async with opened(service) as world:
                for tenant in (TENANT, OTHER) * 20:
                    await world.log.append(tenant, decision())
                for tenant in (TENANT, OTHER):
                    report = await verify(world.store, tenant)
                    assert (report["valid"], report["total"]) == (True, 20)
        finally:
            server.stop()
