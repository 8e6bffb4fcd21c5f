"""Finds policy folders that belong to no tenant, and logs them. Opens no policy file."""

import asyncio
import logging

from control_api.app_context import AppContext
from control_api.store.queries import tenants
from policies.definitions.definition import LoadError
from policies.definitions.folders import UnownedFolder, unowned
from policies.definitions.policy_files import strays
from policies.definitions.policy_files import tenants as folders

_log = logging.getLogger("sluice.policies")


async def unowned_folders(app: AppContext) -> list[UnownedFolder]:
    """The folders without a tenant, each with the most similar tenant; all are logged. Empty if
    there is no policy directory, or if it can't be read."""
    directory = app.settings.policy_dir
    if directory is None:
        return []
    async with app.store.reading_all_tenants() as connection:
        known = {each.tenant_id: each.name for each in await tenants.known(connection)}
    try:
        for fault in await asyncio.to_thread(strays, directory):
            _log.warning("%s", fault)
        # In a thread, because each folder is compared with every tenant's name.
        found = await asyncio.to_thread(lambda: unowned(folders(directory), known))
    except LoadError as error:
        # Loading the files fails for the same reason and refuses the reload; this only warns.
        _log.error("the policy directory can't be read: %s", error)
        return []
    for each in found:
        _log.warning("%s", each)
    return found
