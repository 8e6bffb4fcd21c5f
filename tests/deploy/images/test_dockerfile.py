"""What the Dockerfile promises, checked without building: these hold on every machine."""

from __future__ import annotations

import re

import pytest

from deploy.images.layout import IMAGES, NFT, PYTHON, USER
from deploy.lock import EXTRAS
from tests.deploy.images.containers import ROOT

FOLDER = ROOT / "deploy/images"
TEXT = (FOLDER / "Dockerfile").read_text("utf-8")
INSTRUCTIONS = re.sub(r"(?m)^\s*#.*\n", "", TEXT).replace("\\\n", " ")
# Stage: its base, and its instructions.
STAGES = {
    name: (base, body)
    for base, name, body in re.findall(
        r"(?ms)^FROM (\S+) AS (\S+)\n(.*?)(?=^FROM |\Z)", INSTRUCTIONS
    )
}
FINAL = ("sidecar", "server")


def test_the_base_is_the_builders_choice_and_only_by_digest() -> None:
    assert re.search(r"(?m)^ARG BASE$", INSTRUCTIONS)
    assert 'case "${BASE}" in *@sha256:*)' in STAGES["tools"][1]
    assert {base for base, _ in STAGES.values()} == {"${BASE}", "tools", "scratch"}


@pytest.mark.parametrize("name", FINAL)
def test_a_final_stage_is_made_of_prepared_files_alone(name: str) -> None:
    base, body = STAGES[name]
    assert base == "scratch"
    # A RUN would need a shell in the image, and would write files of its own time.
    assert not re.search(r"(?m)^(RUN|ADD|VOLUME)\b", body)
    copied = re.findall(r"(?m)^COPY (.*)$", body)
    root = f"--from={name}-root"
    assert copied == [f"{root} /image/{layer}/ /" for layer in ("system", "libraries", "sluice")]


@pytest.mark.parametrize("name", FINAL)
def test_an_image_runs_sluice_without_a_shell_as_its_own_user(name: str) -> None:
    body = STAGES[name][1]
    assert f"USER {USER}:{USER}\n" in body
    assert 'ENTRYPOINT ["sluice"]\n' in body
    assert re.search(r'(?m)^CMD \["', body)
    for label in ("version", "revision", "licenses", "source", "title", "description"):
        assert f"org.opencontainers.image.{label}=" in body


def test_pip_s_configuration_is_in_no_layer() -> None:
    for line in re.findall(r"(?m)^RUN (.*(?:libraries|images\.root).*)$", INSTRUCTIONS):
        assert "--mount=type=secret,id=pip.conf" in line
        assert "--mount=type=secret,id=certificates" in line
    assert not re.search(r"(?i)(index-url|PIP_|trusted-host)", INSTRUCTIONS)


def test_the_build_context_has_only_what_it_needs() -> None:
    lines = (FOLDER / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    # Everything is left out first; then what the build copies is let in.
    assert rules[0] == "*"
    sources = re.findall(r"(?m)^COPY ((?!--from)\S.*) \S+$", STAGES["tools"][1])
    copied = {word.split("/")[0] for source in sources for word in source.split()}
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == copied


def test_an_image_s_extras_exist_in_the_distribution() -> None:
    for contents in IMAGES.values():
        assert {*contents.extras} <= {*EXTRAS}


def test_no_package_brings_a_shell_or_a_package_manager() -> None:
    packages = [*PYTHON, *NFT]
    assert len(packages) == len(set(packages))
    assert not {"dash", "bash", "busybox", "coreutils", "dpkg", "apt", "python3-pip"} & {*packages}
