"""Finds policy folders that belong to no tenant, and the tenant each was probably meant for.

Such a folder has no effect, though its author believes it has. Pure: names in, names out.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

DEFAULT = "default"
"""The tenant that every installation has."""
MAX_FOLDERS = 20
"""The limit on reported folders: each is compared with every tenant's name."""
_BYTECODE = (
    "__pycache__"  # Python writes it beside the modules that are next to the sample policies
)
_ASSIGNED_ID = re.compile(r"ten_[0-9A-Za-z]{22}\Z")


class UnownedFolder(NamedTuple):
    """A folder without a tenant, and the tenant with the most similar id or name, if any."""

    folder: str
    nearest: str | None

    def __str__(self) -> str:
        hint = f": did you mean `{self.nearest}`?" if self.nearest else ""
        return f"policy folder `{self.folder}` belongs to no tenant{hint}"


def unowned(folders: Iterable[str], tenants: Mapping[str, str]) -> list[UnownedFolder]:
    """Those of `folders` that no tenant owns, at most `MAX_FOLDERS`. `tenants` maps ids to names;
    names are compared too, since a folder is often named after the tenant instead of its id."""
    left = [folder for folder in folders if folder not in tenants and folder != _BYTECODE]
    by_spelling: dict[str, str] = {}
    for tenant_id, name in tenants.items():
        by_spelling.setdefault(name.casefold(), tenant_id)
    # An id wins over another tenant's name of the same spelling: the folder is looked up by id.
    by_spelling |= {tenant_id.casefold(): tenant_id for tenant_id in tenants}
    return [UnownedFolder(folder, _nearest(folder, by_spelling)) for folder in left[:MAX_FOLDERS]]


def unlikely(folders: Iterable[str]) -> list[UnownedFolder]:
    """Like `unowned`, without a list of tenants: a tenant is `default` or has an assigned id."""
    return unowned((each for each in folders if not _ASSIGNED_ID.match(each)), {DEFAULT: DEFAULT})


def _nearest(folder: str, by_spelling: Mapping[str, str]) -> str | None:
    near = difflib.get_close_matches(folder.casefold(), by_spelling, n=1)
    return by_spelling[near[0]] if near else None
