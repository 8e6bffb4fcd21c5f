"""Reads the policies that a command's arguments name: from a directory of policy files, from one
file, or from a git revision.

A revision may come from a pull request, so nothing in it is trusted: neither the revision's name,
nor the attributes of its files (`export-ignore` hides a file from `git archive`), nor their paths.
Nothing in the checkout changes, and no filter or hook of the repository runs.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from policies.definitions.definition import Definition, LoadError
from policies.definitions.load import load_file, load_tenant
from policies.definitions.model import Policy
from policies.definitions.policy_files import strays, tenants

SECONDS = 60.0
MAX_FILES = 100_000
_LINK = "120000"
_SUBMODULE = "commit"


class GitFailed(Exception):
    """git can't give the files; the message says why"""


class _File(NamedTuple):
    mode: str
    digest: str
    path: str


@contextmanager
def checked_out(revision: str, path: Path) -> Iterator[Path]:
    """Yield the path of a temporary copy of `path` as it was at the git revision. Raises
    `GitFailed`."""
    folder = path.resolve()
    while not folder.is_dir():
        folder = folder.parent
    top = Path(_git(folder, "rev-parse", "--show-toplevel").decode().removesuffix("\n"))
    inside = path.resolve().relative_to(top.resolve())
    # INVARIANT: `--end-of-options` comes first. A revision such as `--output=FILE` is an option
    # otherwise.
    named = ("--verify", "--quiet", "--end-of-options", revision + "^{tree}")
    try:
        tree = _git(top, "rev-parse", *named).decode().strip()
    except GitFailed:
        raise GitFailed(f"`{revision}` is not a revision") from None
    files = _listed(top, tree, inside.as_posix())
    if not files:
        raise GitFailed(f"`{revision}` has no `{inside}`")
    with TemporaryDirectory() as scratch:
        _write(Path(scratch), files, _contents(top, files))
        found = Path(scratch, inside)
        if not found.resolve().is_relative_to(Path(scratch).resolve()):
            raise GitFailed(f"`{inside}` is a link out of the revision")
        yield found


def _listed(top: Path, tree: str, inside: str) -> list[_File]:
    # Without `--literal-pathspecs`, a path such as `:(exclude)x` would be a pattern.
    where = () if inside == "." else ("--", inside)
    listed = _git(top, "--literal-pathspecs", "ls-tree", "-r", "-z", "--full-tree", tree, *where)
    files: list[_File] = []
    for line in listed.split(b"\0")[:-1]:
        about, _, path = line.partition(b"\t")
        mode, kind, digest = about.decode().split(" ")
        if kind != _SUBMODULE:
            files.append(_File(mode, digest, path.decode(errors="surrogateescape")))
    if len(files) > MAX_FILES:
        raise GitFailed(f"there are {len(files)} files, which is more than {MAX_FILES}")
    return files


def _contents(top: Path, files: list[_File]) -> list[bytes]:
    """Return the content of each file as it was committed, in the same order. Raises `GitFailed` if
    one is missing in the repository."""
    asked = "".join(f"{each.digest}\n" for each in files).encode()
    answer = _git(top, "cat-file", "--batch", given=asked)
    found: list[bytes] = []
    at = 0
    for each in files:
        # `<digest> blob <size>`, a line break, the content, a line break.
        end = answer.find(b"\n", at)
        about = answer[at:end].split(b" ")
        if end < 0 or len(about) != 3 or about[1] != b"blob":
            raise GitFailed(f"the content of {each.path!a} is missing in the repository")
        size = int(about[2])
        found.append(answer[end + 1 : end + 1 + size])
        at = end + 1 + size + 1
    return found


def _write(scratch: Path, files: list[_File], contents: list[bytes]) -> None:
    # Links come last: a tree made by hand may name `a` as a link and `a/b` as a file, and no file
    # may be written through a link.
    order = sorted(range(len(files)), key=lambda at: files[at].mode == _LINK)
    for at in order:
        mode, _, name = files[at]
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts:
            raise GitFailed(f"the revision has a file with the path {name!a}")
        path = scratch.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if mode == _LINK:
                # The loader follows no link out of a tenant's folder.
                path.symlink_to(contents[at].decode(errors="surrogateescape"))
            else:
                path.write_bytes(contents[at])
        except (OSError, ValueError) as error:
            raise GitFailed(f"{name!a} can't be copied: {error}") from error


def _git(folder: Path, *arguments: str, given: bytes | None = None) -> bytes:
    command = ["git", "-C", str(folder), *arguments]
    try:
        answer = subprocess.run(
            command, input=given, capture_output=True, timeout=SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise GitFailed(f"git can't be run: {error}") from error
    if answer.returncode:
        raise GitFailed(f"git: {answer.stderr.decode(errors='replace').strip()}")
    return answer.stdout


GIT = "git:"


class Unusable(Exception):
    """policies that can't be read; the message says why, with file and line where there is one"""


def read(source: str, tenant: str | None, other: str | None = None) -> list[Policy]:
    """Return the policies that `source` names: a directory, a file, or `git:REV[:PATH]`. Without
    PATH, `other` is used, the path of the other side of a comparison. Raises `Unusable`."""
    if not source.startswith(GIT):
        return _read(Path(source), tenant)
    revision, _, path = source.removeprefix(GIT).partition(":")
    path = path or (other or "")
    if not revision or not path or path.startswith(GIT):
        raise Unusable(f"`{source}`: say which path: {GIT}REV:PATH")
    try:
        with checked_out(revision, Path(path)) as found:
            return _read(found, tenant)
    except GitFailed as error:
        raise Unusable(str(error)) from error


def _read(path: Path, tenant: str | None) -> list[Policy]:
    if not path.exists():
        raise Unusable(f"`{path}` does not exist")
    try:
        definitions = load_file(path) if path.is_file() else _load(path, tenant)
    except LoadError as error:
        raise Unusable(str(error)) from error
    return [_policy(each) for each in definitions]


def _load(root: Path, tenant: str | None) -> list[Definition]:
    if faults := strays(root):
        raise LoadError(faults)
    found = tenants(root)
    if tenant is None:
        if len(found) != 1:
            listed = ", ".join(f"`{each}`" for each in found) or "none"
            raise Unusable(f"`{root}` holds several tenants or none ({listed}): name one, --tenant")
        tenant = found[0]
    return load_tenant(root, tenant)


def _policy(definition: Definition) -> Policy:
    # The store gives ids and versions; a question about what is allowed needs neither.
    return Policy.from_wire({**definition.body, "policy_id": "", "version": 0})


def body(policy: Policy) -> dict[str, Any]:
    """Return a policy's fields as requests to the service contain them: without the id and the
    version, which the service adds."""
    wire = policy.to_wire()
    return {name: wire[name] for name in wire if name not in ("policy_id", "version")}
