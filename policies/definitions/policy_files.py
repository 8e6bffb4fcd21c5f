"""Finds a tenant's files in a policy directory:

    <dir>/<tenant_id>/<industry>/<process_group>.yaml    policies
    <dir>/<tenant_id>/guardrails.yaml                    guardrails
    <dir>/<tenant_id>/…/*_test.yaml                      tests of the policies, at any depth

Knows folders, links, and the extra names that editors and Kubernetes create. Opens no file but
those of tests. Also finds files that an author would wrongly believe to be in force: a misplaced
file, which is a fault; a folder that belongs to no tenant; and a file named like tests that defines
policies, as such files did before tests existed. Nothing else in a file of tests keeps policies
from being loaded, so nothing else in it is read here.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from policies.definitions.definition import DefinitionFault, LoadError, surrogate_fault
from policies.ground.canonical import identifier_fault
from policies.ground.errors import worded

FORM = "policy files are <tenant_id>/<industry>/<process_group>.yaml"
GUARDRAILS = "guardrails.yaml"
TESTS = "_test.yaml"
_BESIDE = f", and a tenant's guardrails are in <tenant_id>/{GUARDRAILS}"
MAX_DEPTH = 8
"""The most levels of folders below a tenant's folder that are searched for tests."""

_Misplaced = Callable[[Path, str], None]


def tenants(root: Path) -> list[str]:
    """Return the ids of the tenants that have a folder in `root`, sorted. Raises `LoadError` if
    `root` is not a directory: a missing mount must not look like tenants without policies."""
    # `strays` reports the folders whose names can't be a tenant's.
    return [path.name for path in _entries(root) if path.is_dir() and not _fault(path.name)]


def strays(root: Path) -> list[DefinitionFault]:
    """Return a fault for each policy file and folder in `root` that can't belong to any tenant."""
    # Escaped: such a name may hold line breaks, or not be text.
    return [
        DefinitionFault(ascii(path.name)[1:-1], 0, "", f"belongs to no tenant: {FORM}")
        for path in _entries(root)
        if ((_is_yaml(path) or is_test(path)) and path.is_file())
        or (path.is_dir() and _fault(path.name))
    ]


def files(root: Path, tenant_id: str) -> tuple[list[Path], list[DefinitionFault]]:
    """Return the tenant's policy files, sorted, and the faults of misplaced files. Both are empty
    if the tenant has no folder. Raises `LoadError` as `tenants` does."""
    found: list[Path] = []
    faults: list[DefinitionFault] = []
    if not has_folder(root, tenant_id):
        return found, faults

    def misplaced(path: Path, message: str) -> None:
        faults.append(DefinitionFault(str(path.relative_to(root)), 0, "", message))

    tenant = root / tenant_id
    # Resolved: the directory itself may be a link, as `..data` is in a mounted ConfigMap.
    if not leads_inside(tenant, root.resolve()):
        misplaced(tenant, "is a link out of the policy directory")
        return found, faults
    home = tenant.resolve()
    for folder in _listed(tenant, misplaced):
        if folder.is_dir():
            inner = _listed(folder, misplaced)
            found += [path for path in inner if _is_policy_file(path, home, misplaced)]
        elif _is_yaml(folder) and folder.name != GUARDRAILS:
            misplaced(folder, f"is directly under the tenant's folder; {FORM}{_BESIDE}")
    return found, faults


def guardrail_file(root: Path, tenant_id: str) -> Path | None:
    """Return the path of the tenant's guardrail file; None if there is none. Raises `LoadError` as
    `tenants` does, or if the file is a link out of the tenant's folder."""
    if not has_folder(root, tenant_id):
        return None
    tenant = root / tenant_id

    def refuse(path: Path, message: str) -> None:
        raise LoadError([DefinitionFault(str(path.relative_to(root)), 0, "", message)])

    for path in _listed(tenant, refuse):
        if path.name == GUARDRAILS:
            if not leads_inside(tenant, root.resolve()) or not leads_inside(path, tenant.resolve()):
                refuse(path, "is a link out of the tenant's folder")
            return path
    return None


def policy_tests(root: Path, tenant_id: str) -> list[Path]:
    """Return the tenant's test files, `*_test.yaml` at any depth, sorted. Raises `LoadError` as
    `tenants` does, or if a folder can't be read or a link leads out of the tenant's folder."""
    faults: list[DefinitionFault] = []

    def misplaced(path: Path, message: str) -> None:
        faults.append(DefinitionFault(str(path.relative_to(root)), 0, "", message))

    def below(folder: Path, depth: int) -> Iterator[Path]:
        for path in _listed(folder, misplaced):
            if path.is_dir():
                # A link to a folder above would lead here again.
                if depth < MAX_DEPTH and not folder.resolve().is_relative_to(path.resolve()):
                    yield from below(path, depth + 1)
            elif not is_test(path):
                continue
            elif leads_inside(path, home):
                yield path
            else:
                misplaced(path, "is a link out of the tenant's folder")

    if not has_folder(root, tenant_id):
        return []
    tenant = root / tenant_id
    home = tenant.resolve()
    found = sorted(below(tenant, 0))
    if faults:
        raise LoadError(faults)
    return found


def _is_policy_file(path: Path, home: Path, misplaced: _Misplaced) -> bool:
    if path.is_dir():
        for deeper in filter(_is_yaml, _listed(path, misplaced)):
            misplaced(deeper, f"is one folder too deep; {FORM}")
        return False
    if not _is_yaml(path):
        return False
    if path.suffix != ".yaml":
        misplaced(path, "must end in `.yaml`")
        return False
    # Kubernetes mounts a ConfigMap as links, so links are allowed. A link out of the tenant's
    # folder could load another tenant's policies, or show /etc/passwd in an error message.
    if not leads_inside(path, home):
        misplaced(path, "is a link out of the tenant's folder")
        return False
    return True


def _entries(root: Path) -> list[Path]:
    def unreadable(path: Path, message: str) -> None:
        raise LoadError([DefinitionFault(str(path), 0, "", message)])

    return _listed(root, unreadable)


def has_folder(root: Path, tenant_id: str) -> bool:
    """Return whether the tenant has a folder in `root`. Raises `LoadError` if `root` is not a
    directory."""
    # A volume that is not mounted must not remove every policy of the tenant.
    if not root.is_dir():
        raise LoadError([DefinitionFault(str(root), 0, "", "is not a directory")])
    # An id such as `..` or `../b` must not lead out of `root`.
    plain = Path(tenant_id).name == tenant_id != "" and not tenant_id.startswith(".")
    return plain and (root / tenant_id).is_dir()


def leads_inside(path: Path, home: Path) -> bool:
    """Return whether `path`, which may be a link, leads to something inside the folder `home`, a
    resolved path."""
    try:
        found = path.resolve()
        # From Python 3.13 on, a link that points to itself is returned as it is.
        return found.is_relative_to(home) and not found.is_symlink()
    except (OSError, RuntimeError):  # a link that points to itself
        return False


def _listed(folder: Path, unreadable: _Misplaced) -> list[Path]:
    """Return the folder's entries, sorted, without hidden ones such as `.loans.yaml.swp` and
    `..data`. If the folder can't be read, call `unreadable` and return an empty list."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        unreadable(folder, f"can't be read: {worded(error)}")
        return []


def _is_yaml(path: Path) -> bool:
    """Return whether the path may be that of a policy file, by its name: it ends as YAML does, and
    not as a test."""
    return path.suffix.lower() in (".yaml", ".yml") and not is_test(path)


def is_test(path: Path) -> bool:
    """Return whether the path is that of a test file, by its name. Such a file defines no policies,
    wherever it is."""
    return path.name.endswith(TESTS)


def _fault(name: str) -> str | None:
    return identifier_fault(name) or surrogate_fault(name)


# The member `policies` of a whole file, in a block or in braces.
_POLICIES = re.compile(rb"""^(?:\{ ?)?["']?policies["']? ?:""", re.MULTILINE)
_SEARCHED = 1024 * 1024
"""The most bytes of a test file that are searched for policies; a larger file can't be a policy
file."""


def policies_among_tests(root: Path, tenant_id: str) -> Iterator[DefinitionFault]:
    """Yield a fault for each of the tenant's test files that defines policies, and for each link
    out of its folder."""
    try:
        paths = policy_tests(root, tenant_id)
    except LoadError as error:
        yield from error.faults
        return
    for path in paths:
        found = _POLICIES.search(text := _read(path))
        if found is not None:
            message = f"defines policies, but a file that ends in `{TESTS}` has tests alone"
            line = text.count(b"\n", 0, found.start()) + 1
            yield DefinitionFault(str(path.relative_to(root)), line, "policies", message)


def _read(path: Path) -> bytes:
    """Return the first bytes of a file, up to `_SEARCHED`; empty if it can't be read, since then
    its content is unknown."""
    try:
        return path.read_bytes()[:_SEARCHED] if path.is_file() else b""
    except OSError:
        return b""


DEFAULT = "default"
"""The id of the tenant that every installation has."""
MAX_FOLDERS = 20
"""The most folders that are reported as unowned, since each is compared with every tenant's
name."""
_BYTECODE = (
    "__pycache__"  # Python writes it beside the modules that are next to the sample policies
)
_ASSIGNED_ID = re.compile(r"ten_[0-9A-Za-z]{22}\Z")


class UnownedFolder(NamedTuple):
    """A folder that belongs to no tenant. `nearest` is the id of the tenant with the most similar
    id or name, None if none is similar."""

    folder: str
    nearest: str | None

    def __str__(self) -> str:
        hint = f": did you mean `{self.nearest}`?" if self.nearest else ""
        return f"policy folder `{self.folder}` belongs to no tenant{hint}"


def unowned(folders: Iterable[str], tenants: Mapping[str, str]) -> list[UnownedFolder]:
    """Return those of `folders` that no tenant owns, at most `MAX_FOLDERS`. `tenants` maps ids to
    names. To find the nearest tenant, names are compared too, since a folder is often named after
    the tenant instead of its id."""
    left = [folder for folder in folders if folder not in tenants and folder != _BYTECODE]
    by_spelling: dict[str, str] = {}
    for tenant_id, name in tenants.items():
        by_spelling.setdefault(name.casefold(), tenant_id)
    # An id wins over another tenant's name of the same spelling: the folder is looked up by id.
    by_spelling |= {tenant_id.casefold(): tenant_id for tenant_id in tenants}
    return [UnownedFolder(folder, _nearest(folder, by_spelling)) for folder in left[:MAX_FOLDERS]]


def unlikely(folders: Iterable[str]) -> list[UnownedFolder]:
    """Return the folders that probably belong to no tenant, judged without a list of tenants: a
    tenant's id is `default`, or has the form of an assigned id."""
    return unowned((each for each in folders if not _ASSIGNED_ID.match(each)), {DEFAULT: DEFAULT})


def _nearest(folder: str, by_spelling: Mapping[str, str]) -> str | None:
    near = difflib.get_close_matches(folder.casefold(), by_spelling, n=1)
    return by_spelling[near[0]] if near else None
