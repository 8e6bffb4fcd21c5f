"""Both forms of the core, compared by a few thousand random decisions and records; `python -m
tests.compiled` compares a million. The comparison needs a compiled tree: `make test COMPILED=1`."""

from __future__ import annotations

import re
import shutil
from importlib import import_module
from pathlib import Path

import pytest

from deploy.compile.modules import FILES, MODULES
from policies.checks.order import NAMES
from policies.ground.core_form import CORE_FORM
from tests.compiled.comparison import FormsDiffer, compare
from tests.compiled.outcomes import outcomes
from tests.deploy.launcher import sluice

ROOT = Path(__file__).resolve().parents[2]
VERIFYING = ("verify.py", "entry.py", "walk/gaps.py", "walk/continuity.py")
compiled_only = pytest.mark.skipif(
    CORE_FORM != "compiled", reason="the core runs as Python here; make test COMPILED=1"
)


def test_every_module_of_the_list_has_the_form_that_the_service_reports() -> None:
    assert {(ROOT / file).is_file() for file in FILES} == {True}
    suffix = ".so" if CORE_FORM == "compiled" else ".py"
    imported = {name: import_module(name).__file__ or "" for name in MODULES}
    assert {name: file for name, file in imported.items() if not file.endswith(suffix)} == {}


def test_the_version_names_the_form_that_runs() -> None:
    assert f", the core is {CORE_FORM}\n" in sluice("--version").stdout


@pytest.mark.deep(
    stands_in="test_the_draws_of_a_seed_reach_every_check_every_kind_of_error_and_most_findings"
)
def test_the_draws_reach_every_check_every_kind_of_error_and_every_finding() -> None:
    assert not findings_that_lack("\n".join(each for at in range(4) for each in outcomes(at, 300)))


def test_the_draws_of_a_seed_reach_every_check_every_kind_of_error_and_most_findings() -> None:
    assert len(findings_that_lack("\n".join(outcomes(0, 300)))) <= 4


def findings_that_lack(said: str) -> set[str]:
    """The findings of a verification that the outcomes lack, which have all else."""
    assert set(re.findall(r"decision='(\w+)', policy_name", said)) == {"ALLOW", "DENY"}
    assert set(re.findall(r"check='(\w+)'", said)) == {*NAMES}
    assert "tenant_frozen" in said
    assert ',"masking":true' in said
    errors = set(re.findall(r"(?m)^([A-Z]\w+): ", said))
    assert {"Invalid", "NotCanonical", "JSONDecodeError", "KeyError"} <= errors
    source = "".join((ROOT / "policies/trail" / name).read_text() for name in VERIFYING)
    expected = set(re.findall(r"Reason\.([A-Z_]+)", source))
    assert "valid=True" in said
    return expected - set(re.findall(r"<Reason\.(\w+):", said))


def test_a_seed_gives_the_same_outcomes_again() -> None:
    assert [*outcomes(7, 40)] == [*outcomes(7, 40)] != [*outcomes(8, 40)]


@compiled_only
def test_both_forms_give_the_same_bytes() -> None:
    assert [*compare(ROOT, 3000)] == [1000, 2000, 3000]


@compiled_only
def test_a_source_that_gives_other_outcomes_is_found(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("policies", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    for library in ROOT.glob("*.so"):
        shutil.copy(library, tree)
    edited = tree / "policies/checks/source.py"
    edited.write_text(edited.read_text().replace("is in `denied", "is  in `denied"))
    with pytest.raises(FormsDiffer, match=r"pure .* is  in `denied_sources`"):
        list(compare(tree, 1000))
