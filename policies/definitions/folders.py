"""Which tenant a policy folder is meant for, where its name is no tenant's. Pure: names in, names
out. A folder of no tenant has no effect, while its author believes that it has."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

DEFAULT = "default"
"""The tenant that every installation has."""
MAX_FOLDERS = 20
"""Folders that are compared with every tenant's name; the rest are only counted."""
_GIVEN_ID = re.compile(r"ten_[0-9A-Za-z]{22}\Z")


class UnownedFolder(NamedTuple):
    """A folder of no tenant, and the tenant whose id or name comes nearest, if any is near."""

    folder: str
    nearest: str | None

    def __str__(self) -> str:
        hint = f": did you mean `{self.nearest}`?" if self.nearest else ""
        return f"policy folder `{self.folder}` belongs to no tenant{hint}"


def unowned(folders: Iterable[str], tenants: Mapping[str, str]) -> list[UnownedFolder]:
    """The first of `folders` that are named like none of `tenants`, which maps ids to names. A
    tenant's name is near too: it is often taken for the id."""
    left = [folder for folder in folders if folder not in tenants]
    by_word: dict[str, str] = {}
    for tenant_id, name in tenants.items():
        by_word.setdefault(name.casefold(), tenant_id)
    by_word |= {tenant_id.casefold(): tenant_id for tenant_id in tenants}
    return [UnownedFolder(folder, _nearest(folder, by_word)) for folder in left[:MAX_FOLDERS]]


def unlikely(folders: Iterable[str]) -> list[UnownedFolder]:
    """The same where the tenants are not known: the service names one `default`, and gives the
    others an id of its own form."""
    return unowned((each for each in folders if not _GIVEN_ID.match(each)), {DEFAULT: DEFAULT})


def _nearest(folder: str, by_word: Mapping[str, str]) -> str | None:
    near = difflib.get_close_matches(folder.casefold(), by_word, n=1)
    return by_word[near[0]] if near else None
