"""A control API over https: which certificates a command trusts, and which it presents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.commands.client.client import run
from deploy.commands.policy.__main__ import main as policy
from deploy.commands.verify.__main__ import main as verify
from deploy.init.run import provision
from tests.support.certificates import Authority, authority
from tests.support.control_api import ControlApi, running_control_api


@contextmanager
def serving(directory: Path, issuer: Authority, name: str, **more: str) -> Iterator[ControlApi]:
    """A control API that presents a certificate of `issuer` for `name`."""
    pair = issuer.issue(name)
    tls = {"SLUICE_TLS_CERTIFICATE": str(pair.certificate), "SLUICE_TLS_KEY": str(pair.key)}
    with running_control_api(directory, **tls, **more) as api:
        yield api


def agents(api: ControlApi, *words: str) -> int:
    return agents_at("127.0.0.1", api, *words)


def agents_at(host: str, api: ControlApi, *words: str, **environ: str) -> int:
    url = f"https://{host}:{api.port}"
    given = {"SLUICE_API_KEY": api.admin_key, **environ}
    return run("agents", ["list", "--url", url, "--json", *words], given)


@pytest.mark.deep(stands_in="test_a_client_certificate_is_presented_on_request")
def test_only_a_certificate_of_the_named_authority_is_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = authority("ours"), authority("theirs")
    with serving(tmp_path / "a", ours, "127.0.0.1") as api:
        capsys.readouterr()
        assert agents(api, "--ca", str(ours.path)) == 0
        assert json.loads(capsys.readouterr().out) == []
        for words in ((), ("--ca", str(theirs.path))):
            assert agents(api, *words) == 1
            assert "--ca FILE or SLUICE_CA names the authority" in capsys.readouterr().err
    with serving(tmp_path / "b", ours, "another.example") as api:
        assert agents(api, "--ca", str(ours.path)) == 1
        assert "not valid for '127.0.0.1'" in capsys.readouterr().err


def test_a_client_certificate_is_presented_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = authority("ours")
    pair = ours.issue("operator")
    shown = ("--cert", str(pair.certificate), "--cert-key", str(pair.key))
    with serving(tmp_path, ours, "127.0.0.1", SLUICE_TLS_CLIENT_CA=str(ours.path)) as api:
        assert agents(api, "--ca", str(ours.path), *shown) == 0
        # The variable stands for the option, which wins over it.
        theirs = str(authority("theirs").path)
        for words, trusted, code in (
            ((), str(ours.path), 0), ((), theirs, 1), (("--ca", str(ours.path)), theirs, 0),
        ):  # fmt: skip
            found = agents_at("127.0.0.1", api, *words, *shown, SLUICE_CA=trusted)
            assert found == code
        # Its certificate is for the address, and for no name.
        assert agents_at("localhost", api, "--ca", str(ours.path), *shown) == 1
        assert "not valid for 'localhost'" in capsys.readouterr().err
        for words in ((), ("--ca", str(authority("theirs").path))):
            assert agents(api, *words, *shown) == 1
            assert "--ca FILE or SLUICE_CA names the authority" in capsys.readouterr().err
        assert agents(api, "--ca", str(ours.path)) == 1
        assert "no response from" in capsys.readouterr().err


def fleet(url: str, *words: str) -> int:
    return run("fleet", ["--url", url, "--json", *words], {"SLUICE_API_KEY": "slc_tls"})


def test_unusable_tls_files_are_refused_before_a_connection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").touch()
    for words in (
        ("--ca", str(tmp_path / "none")),
        ("--ca", str(tmp_path / "empty")),
        ("--cert", str(tmp_path / "empty")),
        ("--cert-key", str(tmp_path / "empty")),
    ):
        assert fleet("https://192.0.2.1", *words) == 2
        assert "--c" in capsys.readouterr().err
        assert fleet("http://127.0.0.1:1", *words) == 2
        assert "applies only to https://" in capsys.readouterr().err


def test_the_authority_in_the_environment_is_for_every_command_and_for_https_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").touch()
    for name in ("key", "other"):
        (tmp_path / name).write_text("slc_tls")
        (tmp_path / name).chmod(0o600)
    unusable = {"SLUICE_CA": str(tmp_path / "empty"), "SLUICE_KEY_FILE": str(tmp_path / "key")}
    for name, value in unusable.items():
        monkeypatch.setenv(name, value)
    key = ("--key-file", str(tmp_path / "key"))
    state = ("--state", str(tmp_path / "state"))

    def every(url: str) -> list[str]:
        """What each command says, none of which reaches a service."""
        codes = [
            run("fleet", ["--url", url], {**unusable}),
            provision(["--dir", str(tmp_path), "--url", url], {**unusable}),
            policy(["who", "contracts", "--url", url]),
            verify(["--url", url, *key, *state]),
        ]
        assert all(codes)
        return capsys.readouterr().err.strip().splitlines()

    said = every("https://127.0.0.1:1")
    assert len(said) == 4
    assert all("SLUICE_CA" in each and "can't be used" in each for each in said)
    said = every("http://127.0.0.1:1")
    assert len(said) == 4
    assert all("Connection refused" in each for each in said)
