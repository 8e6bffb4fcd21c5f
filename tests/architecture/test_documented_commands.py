"""Each block of commands in a document is run by a test. Where a program that the test needs is
absent, that test skips and says which."""

from __future__ import annotations

import ast
import re
from collections import Counter

from tests.architecture.tree import ROOT
from tests.support.documents import SHELL, blocks, pages

# Test file, test, document: the titles of the blocks that it runs.
RUN_BY = {
    "tests/control_api/test_readme_curl.py": {
        "test_each_command_is_answered_and_each_operation_is_shown": {
            "control_api/OPERATIONS.md": [
                "first", "policies", "guardrails", "sources", "agents and keys", "decisions",
                "candidates", "holds and erasure", "alerts", "retention", "sidecars and tenants",
            ],
        },
        "test_a_script_waits_until_every_sidecar_has_a_change": {
            "control_api/README.md": ["wait for a change"],
            "deploy/README.md": ["wait for a change"],
        },
        "test_the_readme_s_first_commands_serve_and_decide": {
            "control_api/README.md": ["serve and decide"],
        },
        "test_the_issuers_of_the_readme_are_a_setting_that_is_read": {
            "control_api/README.md": ["issuers"],
        },
    },
    "tests/deploy/commands/report/test_commands.py": {
        "test_the_readme_s_commands_write_and_verify_a_report": {
            "deploy/commands/verify/README.md": [
                "write a report on an agent, and check it as its reader will",
            ],
        },
    },
    "tests/deploy/commands/postgres/test_documented.py": {
        "test_the_readme_s_commands_make_a_login_that_has_no_findings": {
            "deploy/commands/postgres/README.md": [
                "make the login", "check the login", "install the identity",
            ],
        },
    },
    "tests/deploy/commands/verify/test_summary.py": {
        "test_the_readme_s_command_verifies_a_file": {
            "deploy/commands/verify/README.md": ["verify a file, with the key's text in log.pub"],
        },
    },
    "tests/deploy/gateways/test_attacks.py": {
        "test_an_allowed_request_arrives_unchanged_and_a_denied_one_does_not": {
            "deploy/gateways/caddy/README.md": ["start"],
            "deploy/gateways/envoy-grpc/README.md": ["start"],
            "deploy/gateways/envoy-http/README.md": ["start"],
            "deploy/gateways/haproxy/README.md": ["start"],
            "deploy/gateways/nginx/README.md": ["start"],
            "deploy/gateways/traefik/README.md": ["start"],
        },
    },
    "tests/deploy/gateways/test_first_try.py": {
        "test_the_readme_leads_to_an_allow_and_a_deny_and_on_with_a_new_key": {
            "deploy/gateways/README.md": [
                "other ports", "agent, policy and keys", "sidecar", "upstream", "ask", "new key",
                "old key",
            ],
            "deploy/gateways/caddy/README.md": ["new key"],
            "deploy/gateways/envoy-grpc/README.md": ["new key"],
            "deploy/gateways/envoy-http/README.md": ["new key"],
            "deploy/gateways/haproxy/README.md": ["new key"],
            "deploy/gateways/nginx/README.md": ["new key"],
        },
    },
    "tests/deploy/helm/test_guides.py": {
        "test_every_command_of_a_guide_works_as_written": {
            "deploy/kubernetes/admission/README.md": ["keys in a Secret", "inject"],
            "deploy/README.md": [
                "cluster", "install", "agent", "demo", "outage", "production", "upgrade",
                "rotate in a cluster",
            ],
            "deploy/kustomize/README.md": ["kustomize", "render"],
        },
        "test_a_cluster_without_objects_has_findings": {"deploy/README.md": ["check a cluster"]},
    },
    "tests/deploy/commands/client/test_incident.py": {
        "test_the_examples_of_the_readme_work_as_they_are_written": {
            "deploy/README.md": ["operating", "replace", "incident"],
        },
    },
    "tests/deploy/commands/client/test_redact.py": {
        "test_the_readme_s_command_erases_a_person": {"deploy/README.md": ["erasure"]},
    },
    "tests/deploy/test_documented_commands.py": {
        "test_every_target_of_make_exists_and_runs_the_promised_commands": {
            "CONTRIBUTING.md": ["develop"],
            "README.md": ["start", "develop"],
            "deploy/README.md": ["try it, in a clone"],
            "tests/chaos/README.md": ["chaos"],
        },
        "test_a_control_api_is_set_up_by_hand": {
            "deploy/README.md": ["PostgreSQL", "test a backup"],
        },
        "test_a_database_is_dumped_and_restored": {"deploy/README.md": ["dump and restore"]},
        "test_the_dashboards_are_generated_in_a_clone": {
            "deploy/grafana/README.md": ["dashboards"],
        },
    },
    "tests/deploy/package/test_documented_installs.py": {
        "test_a_sidecar_is_installed_and_prints_its_settings": {
            "deploy/README.md": ["install for a sidecar"],
        },
        "test_the_lock_s_part_and_the_wheel_are_installed_by_hash": {
            "deploy/README.md": ["install by hash"],
        },
        "test_the_installed_command_writes_the_units": {
            "deploy/README.md": ["systemd", "upgrade a host", "roll back a host"],
        },
    },
    "tests/stories/test_own_app.py": {
        "test_the_page_leads_from_an_own_chroma_to_an_allow_and_a_deny": {
            "deploy/README.md": [
                "your app", "your sidecar's file", "your sidecar", "your decisions",
                "your second source",
            ],
        },
    },
    "tests/deploy/test_parts.py": {
        "test_the_parts_of_a_first_start_run_one_by_one": {
            "README.md": ["start the parts one by one"],
        },
    },
    "tests/deploy/test_up.py": {
        "test_a_first_start_makes_keys_and_a_second_one_after_ctrl_c_reuses_them": {
            "sidecar/README.md": [
                "ask a sidecar, in the folder where `make run` runs",
                "ask by AuthZEN, in the folder where `make run` runs",
            ],
        },
    },
    "tests/deploy/sdk/python/test_package.py": {
        "test_the_readme_s_commands_install_the_guard_and_run_a_recipe": {
            "deploy/sdk/python/README.md": ["install the guard", "run a recipe"],
        },
    },
    "tests/stories/test_policy_author.py": {
        "test_the_walk_ends_with_the_new_policies_in_force": {
            "policies/README.md": [
                "begin", "errors", "guardrail", "test", "difference", "service", "candidate",
                "promote",
            ],
        },
    },
    "tests/sidecar/authzen/test_certification.py": {
        "test_the_readme_s_commands_set_up_the_certification": {
            "deploy/authzen-certification/README.md": [
                "policies and agents", "keys and certificates",
            ],
        },
    },
    "tests/sidecar/doctor/test_namespace.py": {
        "test_complete_rules_redirect_every_user_and_are_no_finding": {
            "deploy/README.md": ["packet filter"],
        },
    },
    "tests/deploy/compose/test_documented_start.py": {
        "test_the_sample_agent_gets_one_document_of_two": {"deploy/compose/README.md": ["start"]},
    },
    "tests/deploy/images/test_documented_builds.py": {
        "test_the_tool_is_called_as_the_readme_documents": {"deploy/images/README.md": ["build"]},
        "test_the_images_are_built_as_the_readme_documents": {
            "deploy/images/README.md": ["build one", "digests", "bills"],
        },
    },
    "tests/deploy/prometheus/test_rules.py": {
        "test_the_readme_s_commands_pass": {"deploy/prometheus/README.md": ["prometheus"]},
    },
}  # fmt: skip
PROGRAMS = re.compile(
    r"^(?:\$ )?(?:git|make|python3?|pip|sluice|kubectl|helm|docker|podman|curl|psql|sudo) \S",
    re.MULTILINE,
)


def test_every_block_of_commands_is_run_by_one_test() -> None:
    claimed = Counter(
        (page, title)
        for tests in RUN_BY.values()
        for documents in tests.values()
        for page, titles in documents.items()
        for title in titles
    )
    found = Counter(
        (each.page, each.title)
        for page in pages()
        for each in blocks(page)
        if each.language in SHELL
    )
    assert found - claimed == Counter(), "write a test that runs these, and add them to RUN_BY"
    assert claimed - found == Counter(), "these are gone from the documents"


def test_every_test_named_as_running_a_block_of_commands_exists() -> None:
    for path, tests in RUN_BY.items():
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert tests.keys() <= functions, path


def test_commands_are_in_blocks_that_are_marked_as_such() -> None:
    fenced = [each for page in pages() for each in blocks(page)]
    # A fence of another language would hide them from the test above.
    hidden = [each for each in fenced if each.language in ("", "text")]
    assert [each for each in hidden if PROGRAMS.search(each.text)] == []
    assert [each for each in fenced if not each.language] == []
