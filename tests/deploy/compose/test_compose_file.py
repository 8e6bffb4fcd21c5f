"""What `deploy/compose/compose.yaml` promises: confined containers, one way from the agent to its
source, secrets as files, and checks without a shell."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from control_api.checkpoint_store.location import StoreLocation
from deploy.init import compose
from deploy.init.files import write
from deploy.local.provision import AGENT_ID
from policies.checks.finding import Facts
from policies.definitions.load import load_file
from policies.definitions.model import Agent, Key, Policy, TenantSettings
from policies.evaluate import evaluate
from policies.retrieval import Retrieval
from policies.sets.role import compile_role
from tests.deploy.launcher import ROOT, environ

FOLDER = ROOT / "deploy/compose"
TEXT = (FOLDER / "compose.yaml").read_text("utf-8")
FILE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
ENVIRONMENT = (FOLDER / "env").read_text("utf-8")
ONCE = {"migrate", "provision", "agent"}
SIDECAR: dict[str, Any] = yaml.safe_load(
    (FOLDER / "sidecar.yaml").read_text("utf-8").replace("@", "")
)


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_has_only_the_rights_that_it_needs(name: str) -> None:
    service = SERVICES[name]
    # Its image is the operator's choice, by a name that `.env` has.
    image = service["image"].removeprefix("${").removesuffix("}")
    assert f"\n{image}=" in ENVIRONMENT
    assert service["user"] == "${SLUICE_UID}:${SLUICE_GID}"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory", "pids"}
    assert not service.keys() & {"privileged", "cap_add", "devices", "pid", "ipc", "network_mode"}
    # Only a service's own data may change; settings, policies and documents may not.
    changing = [each for each in service.get("volumes", []) if not each.endswith(":ro")]
    assert all(each.startswith(("./data/", "./secrets/agent:")) for each in changing)


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - ONCE))
def test_a_service_that_stays_is_checked_without_a_shell(name: str) -> None:
    test = SERVICES[name]["healthcheck"]["test"]
    assert test[0] == "CMD"
    assert test[1] in {"python", "pg_isready", "redis-cli", "promtool", "wget"}
    assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", sorted(ONCE))
def test_a_service_that_ends_is_not_started_again(name: str) -> None:
    assert SERVICES[name]["restart"] == "no"


def test_the_agents_only_way_to_a_source_is_the_sidecar() -> None:
    inside: dict[str, set[str]] = {name: set() for name in FILE["networks"]}
    for name, service in SERVICES.items():
        for network in service["networks"]:
            inside[network].add(name)
    assert inside["agents"] == {"agent", "sidecar"}
    assert inside["sources"] == {"source", "sidecar"}
    assert inside["database"] == {"postgres", "migrate", "control"}
    assert inside["edge"] == {"control"}
    assert inside["monitoring"] == {"prometheus", "grafana"}
    assert inside["view"] == {"grafana"}
    # No way out of these, to the internet or the host's other networks.
    internal = {name for name, settings in FILE["networks"].items() if settings.get("internal")}
    assert internal == FILE["networks"].keys() - {"edge", "view"}


def test_only_this_host_reaches_a_port() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_migrations_run_before_the_service_and_keys_exist_before_the_sidecar() -> None:
    needs = {name: service.get("depends_on", {}) for name, service in SERVICES.items()}
    done, healthy = "service_completed_successfully", "service_healthy"
    assert needs["migrate"] == {"postgres": {"condition": healthy}}
    assert needs["control"]["migrate"] == {"condition": done}
    assert needs["provision"] == {"control": {"condition": healthy}}
    assert needs["sidecar"]["provision"] == {"condition": done}


def test_no_secret_is_in_an_environment() -> None:
    for service in SERVICES.values():
        for variable, value in service.get("environment", {}).items():
            hidden = variable.endswith("_FILE") and value.startswith("/run/secrets/")
            assert hidden or not re.search(r"PASSWORD|SECRET|_KEY$|URL", variable), variable
            assert "@" not in value
    assert "@" not in re.sub(r"(?m)^#.*$|@(VERSION|UID|GID)@", "", (FOLDER / "env").read_text())


def test_the_file_refers_to_nothing_that_init_does_not_write(tmp_path: Path) -> None:
    seed = compose.prepare(tmp_path)
    written = {file.path for file in compose.files(seed)}
    # Whole folders are mounted, too.
    written |= {str(folder) for path in written for folder in Path(path).parents}
    written |= {compose.SEED, compose.KEYS, *compose.PRIVATE}
    secrets = {each["file"].removeprefix("./") for each in FILE["secrets"].values()}
    mounts = {
        volume.split(":")[0].removeprefix("./")
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
    }
    assert secrets | mounts <= written
    variables = set(re.findall(r"\$\{(\w+)", TEXT))
    environment = {
        line.partition("=")[0]
        for line in (FOLDER / "env").read_text().splitlines()
        if line and not line.startswith("#")
    }
    assert variables == environment


def test_checkpoints_outlive_the_container_outside_the_database() -> None:
    control = SERVICES["control"]
    store = StoreLocation.parse(control["environment"]["SLUICE_CHECKPOINT_STORE"])
    [host] = [
        each.split(":")[0]
        for each in control["volumes"]
        if each.split(":")[1:] == [str(store.directory)]
    ]
    assert host.removeprefix("./") in compose.PRIVATE
    others = {name: each.get("volumes", []) for name, each in SERVICES.items() if name != "control"}
    assert not [name for name, each in others.items() if any(host in volume for volume in each)]


@pytest.mark.deep(stands_in="test_a_container_has_only_the_rights_that_it_needs")
def test_podman_compose_reads_the_file_as_we_do(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(TEXT)
    (tmp_path / ".env").write_text("SLUICE_UID=1000\nSLUICE_GID=1000\nSLUICE_CONTROL_IMAGE=c\n")
    program = Path(sysconfig.get_path("scripts"), "podman-compose")
    if not os.access(program, os.X_OK):
        pytest.skip("no podman-compose here: its wheel brings it")
    # It asks podman for its version, and nothing more, to read a file.
    (tmp_path / "podman").write_text("#!/bin/sh\necho podman version 5.4.2\n")
    (tmp_path / "podman").chmod(0o755)
    command = [str(program), "--podman-path", str(tmp_path / "podman"), "--profile", "agent"]
    command += ["--profile", "monitoring"]
    answer = subprocess.run(
        [*command, "config"],
        cwd=tmp_path,
        env=environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    read = yaml.safe_load(answer.stdout)
    assert read["services"].keys() == SERVICES.keys()
    assert read["services"]["control"]["user"] == "1000:1000"
    assert read["services"]["control"]["image"] == "c"
    assert read["services"]["control"]["cap_drop"] == ["ALL"]


def test_a_missing_file_is_written_again_and_nothing_else(tmp_path: Path) -> None:
    def written() -> dict[Path, bytes]:
        write(tmp_path, compose.files(compose.prepare(tmp_path)))
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before, edited = written(), tmp_path / "compose.yaml"
    for name in (*compose.SECRETS.values(), "secrets/database-url"):
        (tmp_path / name).unlink()
    edited.write_text("edited")
    assert written() == before | {edited: b"edited"}


def test_the_sample_agent_may_read_one_of_its_sources_by_its_policy() -> None:
    agent, [source] = SIDECAR["agent"], SIDECAR["sources"]
    [definition] = load_file(ROOT / "policies/definitions/default/retail/customer_support.yaml")
    policy = Policy.from_wire({**definition.body, "policy_id": "p", "version": 1})
    assert (agent["role"], agent["id"]) == (policy.agent_role, AGENT_ID)
    agent_of = Agent(AGENT_ID, "approved", (agent["role"],))
    facts = Facts(
        TenantSettings("t"),
        Key("k", "evaluate"),
        agent_of,
        None,
        compile_role(policy.agent_role, [policy]),
        1,
    )
    answers = {
        route["path"]: evaluate(
            Retrieval(
                agent["role"], "u", route["source_id"], route["sensitivity"], agent_id=AGENT_ID
            ),
            facts,
        )
        for route in source["routes"]
    }
    assert {path: each.decision for path, each in answers.items()} == {
        "/handbook/**": "ALLOW",
        "/products/**": "ALLOW",
        "/payroll/**": "DENY",
    }
    assert "denied_sources" in answers["/payroll/**"].reason
    documents = {f"/{each.parent.name}/**" for each in (FOLDER / "source").rglob("*.txt")}
    assert documents == answers.keys()


def test_the_secrets_follow_from_the_seed_alone(tmp_path: Path) -> None:
    seed = compose.prepare(tmp_path)
    assert compose.prepare(tmp_path) == seed, "a second run keeps the seed"
    other = compose.prepare(tmp_path / "other")
    first, again, others = (
        {each.path: each for each in compose.files(given)} for given in (seed, seed, other)
    )
    assert first == again
    for path in compose.SECRETS.values():
        assert first[path] != others[path], path
