"""Which files of a policy directory are read: their places, links, and what editors leave."""

import os
from pathlib import Path

import pytest

from policies.definitions.definition import LoadError
from policies.definitions.load import load_file, load_tenant
from policies.definitions.policy_files import FORM, strays, tenants
from tests.policies.definitions.policy_directory import ENTRY, faults, of, write


@pytest.mark.parametrize(
    "at",
    ["t/a/.hidden.yaml", "t/a/.a.yaml.swp", "t/a/a.yaml~", "t/a/#a.yaml#", "t/a/.#a.yaml",
     "t/a/a.yaml.bak", "t/a/4913", "t/a/README.md", "t/a/a.json", "t/README.md", "t/.git/a.yaml",
     "t/a/.git/a.yaml", "t/..data/a/a.yaml", ".git/a/a.yaml", "t/a/notes/readme.txt", "notes.md",
     "t/.a.yaml"],
)  # fmt: skip
def test_files_that_editors_and_other_tools_leave_are_ignored(tmp_path: Path, at: str) -> None:
    write(tmp_path, of(ENTRY), "t/a/a.yaml")
    write(tmp_path, b"\xff not: [yaml", at)
    assert tenants(tmp_path) == ["t"]
    assert len(load_tenant(tmp_path, "t")) == 1
    assert strays(tmp_path) == []


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("t/a/b.yml", "t/a/b.yml: must end in `.yaml`"),
        ("t/a/b.YAML", "t/a/b.YAML: must end in `.yaml`"),
        ("t/b.yaml", f"t/b.yaml: is directly under the tenant's folder; {FORM}"),
        ("t/b.yml", "t/b.yml: is directly under the tenant's folder"),
        ("t/a/b/c.yaml", "t/a/b/c.yaml: is one folder too deep; policy files are"),
    ],
)  # fmt: skip
def test_a_misplaced_policy_file_is_a_fault(tmp_path: Path, at: str, said: str) -> None:
    write(tmp_path, of(ENTRY), "t/a/a.yaml")
    write(tmp_path, of(ENTRY.replace("reads", "b")), at)
    (reported,) = faults(tmp_path, "t")
    assert reported.startswith(said)


def test_a_policy_file_outside_a_tenant_folder_is_a_stray(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY), "t/a/a.yaml")
    write(tmp_path, of(ENTRY), "loans.yaml")
    (stray,) = strays(tmp_path)
    assert str(stray) == f"loans.yaml: belongs to no tenant: {FORM}"
    assert tenants(tmp_path) == ["t"]


def test_a_folder_whose_name_is_not_an_identifier_is_a_stray(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY), "a\nb/a/a.yaml")
    (tmp_path / os.fsdecode(b"c\xff") / "a").mkdir(parents=True)
    assert tenants(tmp_path) == []
    assert [fault.file for fault in strays(tmp_path)] == ["a\\nb", "c\\udcff"]


def test_a_path_without_a_valid_industry_is_a_fault(tmp_path: Path) -> None:
    write(tmp_path, "policies: []", "t/a\nb/a.yaml")
    (reported,) = faults(tmp_path, "t")
    assert "`a\\nb` in the path must not contain control characters" in reported


def test_the_name_of_a_file_can_not_drive_a_terminal(tmp_path: Path) -> None:
    folder = os.fsdecode(b"\x1b]0;owned\x07\xff")
    for number in (1, 2):
        write(tmp_path, of(ENTRY), f"t/a{number}/\x1b[2J.yaml")
    write(tmp_path, of(ENTRY), f"t/{folder}/b.yaml")
    reported = faults(tmp_path, "t")
    assert any(each.startswith("t/a1/\\x1b[2J.yaml") for each in reported)
    assert all(each.isprintable() for each in reported), reported


@pytest.mark.parametrize("missing", ["nowhere", "file"])
def test_a_missing_directory_is_an_error_not_an_empty_tenant(tmp_path: Path, missing: str) -> None:
    (tmp_path / "file").write_text("")
    for ask in (tenants, lambda root: load_tenant(root, "t")):
        with pytest.raises(LoadError):
            ask(tmp_path / missing)


@pytest.mark.parametrize(
    "tenant", ["t", "", ".", "..", "a/b", "../t", "/", "\x00", ".hidden", "😀"]
)
def test_a_tenant_without_a_folder_has_no_policies(tmp_path: Path, tenant: str) -> None:
    write(tmp_path, of(ENTRY), "root/other/a/a.yaml")
    write(tmp_path, of(ENTRY), "t/a/a.yaml")
    write(tmp_path, of(ENTRY), "root/.hidden/a/a.yaml")
    assert load_tenant(tmp_path / "root", tenant) == []


def test_a_link_out_of_the_tenants_folder_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, of(ENTRY), "other/a/a.yaml")
    secret = write(tmp_path, "secret: value", "secret.yaml")
    (root / "t/a").mkdir(parents=True)
    (root / "t/a/secret.yaml").symlink_to(secret)
    (root / "t/a/other.yaml").symlink_to(root / "other/a/a.yaml")
    (root / "t/b").symlink_to(root / "other/a")
    assert faults(root, "t") == [
        "t/a/other.yaml: is a link out of the tenant's folder",
        "t/a/secret.yaml: is a link out of the tenant's folder",
        "t/b/a.yaml: is a link out of the tenant's folder",
    ]


def test_a_tenants_folder_that_is_a_link_out_is_refused(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY), "elsewhere/a/a.yaml")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/t").symlink_to(tmp_path / "elsewhere")
    assert faults(tmp_path / "root", "t") == ["t: is a link out of the policy directory"]


def test_links_within_the_tenants_folder_are_followed(tmp_path: Path) -> None:
    """As Kubernetes mounts a ConfigMap: `..data` is a link, and every file a link into it."""
    write(tmp_path, of(ENTRY), "t/a/..2026_01_01/loans.yaml")
    (tmp_path / "t/a/..data").symlink_to("..2026_01_01")
    (tmp_path / "t/a/loans.yaml").symlink_to("..data/loans.yaml")
    assert [each.file for each in load_tenant(tmp_path, "t")] == ["t/a/loans.yaml"]
    root = tmp_path / "whole"
    write(root, of(ENTRY), "..2026/t/a/loans.yaml")
    (root / "..data").symlink_to("..2026")
    (root / "t").symlink_to("..data/t")
    assert tenants(root) == ["t"]
    assert [each.file for each in load_tenant(root, "t")] == ["t/a/loans.yaml"]


def test_dangling_and_circular_links_are_faults(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY), "t/a/a.yaml")
    (tmp_path / "t/a/gone.yaml").symlink_to("gone-target.yaml")
    (tmp_path / "t/a/loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "t/a/up").symlink_to("..")
    reported = faults(tmp_path, "t")
    assert "t/a/gone.yaml: is a link to a file that does not exist" in reported
    assert any(each.startswith("t/a/loop.yaml: ") for each in reported)
    assert len(reported) == 2


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(LoadError) as error:
        load_file(tmp_path / "none.yaml")
    assert [each.message for each in error.value.faults] == ["does not exist"]
    with pytest.raises(LoadError) as error:
        load_file(tmp_path)
    assert [each.message for each in error.value.faults] == ["is a directory"]


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "t/a").mkdir(parents=True)
    os.mkfifo(tmp_path / "t/a/pipe.yaml")
    assert faults(tmp_path, "t") == ["t/a/pipe.yaml: is not a regular file"]


@pytest.mark.parametrize(
    ("method", "at"), [("read_bytes", "t/a/a.yaml"), ("iterdir", "t/a"), ("iterdir", "t")]
)
def test_an_unreadable_file_or_folder_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, at: str
) -> None:
    """A disk that fails, or a mode that forbids: a fake, since root may read everything."""
    write(tmp_path, of(ENTRY), "t/a/a.yaml")
    real = getattr(Path, method)

    def failing(path: Path) -> object:
        if path == tmp_path / at:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, method, failing)
    assert faults(tmp_path, "t") == [f"{at}: can't be read: EACCES (permission denied)"]


def test_one_file_can_be_loaded_without_the_others(tmp_path: Path) -> None:
    path = write(tmp_path, of(ENTRY), "anywhere/loans.yaml")
    (definition,) = load_file(path)
    assert definition.body["industry"] == "anywhere"
    write(tmp_path, of(ENTRY, ENTRY), "anywhere/loans.yaml")
    with pytest.raises(LoadError, match="is already used at"):
        load_file(path)
