"""Which policy files a tenant has: `<dir>/<tenant_id>/<industry>/<process_group>.yaml`.

Knows folders, links, and names that editors and Kubernetes leave lying about. Opens no file. A file
that lies where none should is a fault, not a silence: its author believes that it is in force.
"""

from collections.abc import Callable
from pathlib import Path

from policies.definitions.definition import DefinitionFault, LoadError, surrogate_fault
from policies.ground.json_body import identifier_fault

FORM = "policy files are <tenant_id>/<industry>/<process_group>.yaml"

_Misplaced = Callable[[Path, str], None]


def tenants(root: Path) -> list[str]:
    """The tenants that have a folder, in order. `LoadError` where `root` is no directory: a mount
    that went away must not look like a tenant without policies."""
    return [path.name for path in _entries(root) if path.is_dir() and not _fault(path.name)]


def strays(root: Path) -> list[DefinitionFault]:
    """What lies in `root` as if it were policies, and is in force for no tenant."""
    return [
        DefinitionFault(ascii(path.name)[1:-1], 0, "", f"belongs to no tenant: {FORM}")
        for path in _entries(root)
        if (_is_yaml(path) and path.is_file()) or (path.is_dir() and _fault(path.name))
    ]


def files(root: Path, tenant_id: str) -> tuple[list[Path], list[DefinitionFault]]:
    """The tenant's policy files in order, and what lies where none should. Nothing where it has no
    folder; `LoadError` as in `tenants`."""
    found: list[Path] = []
    faults: list[DefinitionFault] = []
    if not root.is_dir():
        raise LoadError([DefinitionFault(str(root), 0, "", "is not a directory")])
    if not _has_folder(root, tenant_id):
        return found, faults

    def misplaced(path: Path, message: str) -> None:
        faults.append(DefinitionFault(str(path.relative_to(root)), 0, "", message))

    tenant = root / tenant_id
    if not _inside(tenant, root.resolve()):
        misplaced(tenant, "is a link out of the policy directory")
        return found, faults
    home = tenant.resolve()
    for folder in _listed(tenant, misplaced):
        if folder.is_dir():
            inner = _listed(folder, misplaced)
            found += [path for path in inner if _is_policy_file(path, home, misplaced)]
        elif _is_yaml(folder):
            misplaced(folder, f"lies directly under the tenant; {FORM}")
    return found, faults


def _is_policy_file(path: Path, home: Path, misplaced: _Misplaced) -> bool:
    if path.is_dir():
        for deeper in filter(_is_yaml, _listed(path, misplaced)):
            misplaced(deeper, f"lies a folder too deep; {FORM}")
        return False
    if not _is_yaml(path):
        return False
    if path.suffix != ".yaml":
        misplaced(path, "must end in `.yaml`")
        return False
    # Kubernetes mounts a ConfigMap as links, so links are fine; out of the tenant's folder they are
    # another tenant's policies, or /etc/passwd in an error message.
    if not _inside(path, home):
        misplaced(path, "is a link out of the tenant's folder")
        return False
    return True


def _entries(root: Path) -> list[Path]:
    def unreadable(path: Path, message: str) -> None:
        raise LoadError([DefinitionFault(str(path), 0, "", message)])

    return _listed(root, unreadable)


def _has_folder(root: Path, tenant_id: str) -> bool:
    """Never true of an id that is no folder's name: one may hold `/` or be `..`."""
    plain = Path(tenant_id).name == tenant_id != "" and not tenant_id.startswith(".")
    return plain and (root / tenant_id).is_dir()


def _inside(path: Path, home: Path) -> bool:
    try:
        return path.resolve().is_relative_to(home)
    except (OSError, RuntimeError):  # a link that leads to itself
        return False


def _listed(folder: Path, unreadable: _Misplaced) -> list[Path]:
    """In order, without what is hidden: `.loans.yaml.swp`, `..data`."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        unreadable(folder, f"can't be read: {error.strerror}")
        return []


def _is_yaml(path: Path) -> bool:
    return path.suffix.lower() in (".yaml", ".yml")


def _fault(name: str) -> str | None:
    return identifier_fault(name) or surrogate_fault(name)
