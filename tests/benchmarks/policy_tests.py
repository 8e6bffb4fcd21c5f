"""Ten thousand cases of `sluice policy test`, beside a bare loop of the core's decisions.

    python -m tests.benchmarks.policy_tests

Three kinds: a matrix in memory, a matrix in a file by the whole command, and cases written out one
by one in files by the whole command, which then mostly reads YAML. CPU time; ours and the floor in
turn, the median of nine rounds.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory

from policies.definitions.model import SENSITIVITIES, Key, Policy, TenantSettings
from policies.evaluate import evaluate
from policies.testing.cases import CaseFile, Matrix
from policies.testing.run import compiled, run
from tests.benchmarks.measure import Figure

CASES = 10_000
ROUNDS = 9
ROLES = ("underwriter", "teller")
SOURCES = tuple(f"contracts-{n}" for n in range(CASES // len(ROLES) // len(SENSITIVITIES)))
POLICY = Policy("", 0, "reads", ROLES[0], ("contracts-*", "handbook"), ("payroll",), "high")
POLICY_FILE = """\
policies:
  - name: reads
    agent_role: underwriter
    allowed_sources: ["contracts-*", handbook]
    denied_sources: [payroll]
    max_sensitivity: high
"""


def in_memory() -> tuple[float, float]:
    """CPU seconds of ten thousand cases, and of the same decisions alone."""
    values = {"agent_role": ROLES, "source_id": SOURCES, "sensitivity_level": SENSITIVITIES}
    allowed = tuple(
        {"agent_role": ROLES[0], "sensitivity_level": level} for level in SENSITIVITIES[:3]
    )
    matrix = Matrix(1, None, Key("test", "evaluate"), values, allowed)
    file = CaseFile("", TenantSettings("t"), {}, (matrix,))
    roles = compiled([POLICY])
    assert len(file) == CASES
    assert all(result.passed for result in run(file, roles))
    asked = [(result.case.retrieval, result.facts) for result in run(file, roles)]

    def ours() -> None:
        for result in run(file, roles):
            assert result.passed

    def floor() -> None:
        for retrieval, facts in asked:
            evaluate(retrieval, facts)

    taken = [(_cpu(ours), _cpu(floor)) for _ in range(ROUNDS)]
    return statistics.median(each for each, _ in taken), statistics.median(
        each for _, each in taken
    )


def by_command(files: dict[str, str]) -> float:
    """CPU seconds of `sluice policy test` as a process, its start included."""
    with TemporaryDirectory(prefix="sluice-bench-") as folder:
        home = Path(folder, "default/lending")
        home.mkdir(parents=True)
        for name, text in {"loans.yaml": POLICY_FILE, **files}.items():
            (home / name).write_text(text)
        command = [sys.executable, "-m", "deploy.commands.policy", "test", folder]
        taken = []
        for _ in range(ROUNDS):
            before = getrusage(RUSAGE_CHILDREN)
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            after = getrusage(RUSAGE_CHILDREN)
            assert done.stderr == f"{CASES} cases, {CASES} passed, 0 failed\n"
            taken.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return statistics.median(taken)


def matrix() -> dict[str, str]:
    text = (
        f"tests:\n  - matrix:\n      agent_role: [{', '.join(ROLES)}]\n"
        f"      source_id: [{', '.join(SOURCES)}]\n"
        f"      sensitivity_level: [{', '.join(SENSITIVITIES)}]\n    expect_allow:\n"
    )
    for level in SENSITIVITIES[:3]:
        text += f"      - {{agent_role: {ROLES[0]}, sensitivity_level: {level}}}\n"
    return {"loans_test.yaml": text}


def written_out() -> dict[str, str]:
    """Four files, since one may have at most a mebibyte."""
    case = """\
  - name: case {number}
    ask: {{agent_role: underwriter, source_id: contracts-{number}, sensitivity_level: low}}
    expect: {{decision: ALLOW, policy_name: reads}}
"""
    quarter = CASES // 4
    return {
        f"loans_{part}_test.yaml": "tests:\n"
        + "".join(case.format(number=part * quarter + each) for each in range(quarter))
        for part in range(4)
    }


def figures() -> list[Figure]:
    ours, floor = in_memory()
    ratio = ours / floor
    value = f"{ours * 1000:.0f} ms against {floor * 1000:.0f} ms"
    found = [Figure("10,000 policy tests, against evaluate", value, ratio, "", reached=True)]
    for name, files in (("a matrix", matrix()), ("written out", written_out())):
        cpu = by_command(files)
        value, ratio = f"{cpu:.2f} s", cpu / floor
        measure = f"10,000 policy tests by command, {name}"
        found.append(Figure(measure, value, ratio, "< 1 s", reached=cpu < 1))
    return found


def _cpu(work: Callable[[], None]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    for figure in figures():
        print(figure.row())
