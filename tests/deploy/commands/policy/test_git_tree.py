"""Policies at a revision in git, which anyone who opens a pull request may have written."""

import subprocess
from pathlib import Path

import pytest

from deploy.commands.policy.sources import GitFailed, Unusable, checked_out, read

FILE = "policies/default/lending/loans.yaml"
POLICIES = """\
policies:
  - name: reads
    agent_role: analyst
    allowed_sources: [{source}]
    denied_sources: []
    max_sensitivity: high
"""


def git(repository: Path, *arguments: str, given: bytes = b"") -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    command = ["git", "-C", str(repository), *identity, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, check=True)
    return done.stdout.decode().strip()


def write(repository: Path, at: str, text: str) -> None:
    path = repository / at
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def commit(repository: Path) -> str:
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "--allow-empty", "-m", "change")
    return git(repository, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q")
    write(root, FILE, POLICIES.format(source="contracts"))
    commit(root)
    return root


def sources(repository: Path, source: str) -> list[tuple[str, ...]]:
    return [each.allowed_sources for each in read(source, None, str(repository / "policies"))]


@pytest.mark.parametrize("path", ["policies", FILE])
def test_a_revision_contains_what_was_committed(repository: Path, path: str) -> None:
    write(repository, FILE, POLICIES.format(source="changed"))
    found = read("git:HEAD", None, str(repository / path))
    assert [each.allowed_sources for each in found] == [("contracts",)]
    assert sources(repository, f"git:HEAD:{repository / path}") == [("contracts",)]


def test_attributes_neither_hide_nor_change_a_file(repository: Path) -> None:
    write(repository, ".gitattributes", "* export-ignore\n*.yaml export-subst text eol=crlf\n")
    commit(repository)
    assert sources(repository, "git:HEAD") == [("contracts",)]


def test_a_revision_is_never_an_option(repository: Path, tmp_path: Path) -> None:
    for revision in (f"--output={tmp_path / 'out'}", "--exec=false", "-h", "HEAD~9", "", "HEAD\n"):
        with pytest.raises(Unusable):
            sources(repository, f"git:{revision}")
    assert not (tmp_path / "out").exists()


def test_a_path_is_never_a_pattern(repository: Path) -> None:
    for path in (":(glob)**", "*", ":!x", "nowhere"):
        with pytest.raises(GitFailed), checked_out("HEAD", repository / path):
            pass


def test_links_to_the_outside_are_refused(repository: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text(POLICIES.format(source="secret"))
    (repository / FILE).unlink()
    (repository / FILE).symlink_to(secret)
    commit(repository)
    with pytest.raises(Unusable, match="link out of the tenant's folder"):
        sources(repository, "git:HEAD")
    (repository / FILE).unlink()
    write(repository, FILE, "policies: []")
    with pytest.raises(Unusable, match="link out of the revision"):
        read("git:HEAD~0", None, str(repository / FILE))


def crafted(repository: Path, *entries: tuple[str, str, str]) -> str:
    """A commit of a tree that no git command would make: `(mode, name, content)`."""
    tree = b""
    for mode, name, content in entries:
        digest = git(repository, "hash-object", "-w", "--stdin", given=content.encode())
        tree += f"{mode} {name}".encode() + b"\0" + bytes.fromhex(digest)
    arguments = ("hash-object", "-t", "tree", "-w", "--stdin", "--literally")
    return git(repository, "commit-tree", "-m", "x", git(repository, *arguments, given=tree))


@pytest.mark.parametrize("name", ["../out", "..", "/tmp/out", "a/../../../out"])
def test_no_path_of_a_crafted_tree_leaves_the_copy(
    repository: Path, tmp_path: Path, name: str
) -> None:
    revision = crafted(repository, ("100644", name, "x"))
    with pytest.raises(GitFailed), checked_out(revision, repository):
        pass
    assert not (tmp_path / "out").exists()


def test_no_file_is_written_through_a_link(repository: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    entries = (("120000", "a", str(outside)), ("100644", "a/b", "x"))
    revision = crafted(repository, *entries)
    with pytest.raises(GitFailed), checked_out(revision, repository):
        pass
    assert list(outside.iterdir()) == []


def test_a_name_that_is_not_text_is_copied_unchanged(repository: Path) -> None:
    name = b"n\xff\n\t\x1b[2J".decode(errors="surrogateescape")
    write(repository, f"policies/{name}", "x")
    commit(repository)
    with checked_out("HEAD", repository / "policies") as found:
        assert (found / name).read_text() == "x"


def test_a_submodule_is_left_out(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},policies/module")
    git(repository, "commit", "-q", "-m", "module")
    assert sources(repository, "git:HEAD") == [("contracts",)]


def test_a_folder_outside_of_a_repository_is_reported(tmp_path: Path) -> None:
    with pytest.raises(GitFailed, match="not a git repository"), checked_out("HEAD", tmp_path):
        pass
