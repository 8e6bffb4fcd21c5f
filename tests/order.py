"""The order in which the tests run: the slowest files first, so that no worker begins a story of a
minute when the others are finished.

The table holds seconds on two quiet cores, and need not be exact. Files that are not in it come
last. `--durations=30` shows what belongs in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

SLOW = {
    "tests/chaos/test_chaos.py": 90,
    "tests/stories/test_signing_key_rotation.py": 50,
    "tests/stories/test_log_lines.py": 30,
    "tests/stories/test_two_replicas_sign.py": 30,
    "tests/stories/test_pooler.py": 25,
    "tests/stories/test_kill.py": 60,
    "tests/control_api/test_workers.py": 60,
    "tests/control_api/test_serve.py": 40,
    "tests/stories/test_control_api_away.py": 30,
    "tests/stories/test_workload_identity.py": 30,
    "tests/stories/test_clone.py": 25,
    "tests/stories/test_concurrency.py": 25,
    "tests/control_api/test_readme_curl.py": 20,
    "tests/control_api/publishing/test_faults.py": 20,
    "tests/deploy/test_up.py": 20,
    "tests/deploy/test_command.py": 20,
    "tests/stories/test_management_reaches_sidecars.py": 20,
    "tests/stories/test_redis_away.py": 35,
    "tests/sidecar/clients/test_node.py": 20,
    "tests/control_api/maintenance/test_retention.py": 20,
    "tests/control_api/http/test_fuzz.py": 20,
    "tests/stories/test_data_plane.py": 15,
    "tests/stories/test_malformed.py": 25,
    "tests/deploy/gateways/test_attacks.py": 30,
    "tests/deploy/gateways/test_bodies.py": 10,
    "tests/deploy/gateways/test_failures.py": 20,
    "tests/stories/test_incident.py": 20,
    "tests/stories/test_masking.py": 15,
    "tests/stories/test_policy_on_disk.py": 15,
    "tests/stories/test_rotation.py": 15,
    "tests/sidecar/doctor/test_command.py": 15,
    "tests/control_api/log/test_log_key.py": 15,
    "tests/stories/test_purge.py": 25,
    "tests/control_api/console/browser/test_every_page.py": 60,
    "tests/control_api/console/browser/test_every_action.py": 40,
    "tests/control_api/console/browser/test_hostile_content.py": 30,
    "tests/control_api/console/test_hostile_content.py": 25,
    "tests/stories/test_chroma.py": 10,
}


def longest_first(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Deal the slow files to the workers. xdist's `worksteal` gives each worker an equal share of
    the whole list, so each worker's files go to the head of its share."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    heads: list[list[pytest.Item]] = [[] for _ in range(workers)]
    seconds = [0.0] * workers
    for name in sorted(files.keys() & SLOW.keys(), key=lambda each: (-SLOW[each], each)):
        lightest = seconds.index(min(seconds))
        heads[lightest] += files.pop(name)
        seconds[lightest] += SLOW[name]
    rest = [test for tests in files.values() for test in tests]
    ordered: list[pytest.Item] = []
    for index, head in enumerate(heads):
        share = (len(items) - len(ordered)) // (workers - index)
        behind = max(0, share - len(head))
        ordered += [*head, *rest[:behind]]
        del rest[:behind]
    return ordered
