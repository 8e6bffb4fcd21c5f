"""A control API over https: which certificates a command trusts, and which it presents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.client.run import run
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


def agents_at(host: str, api: ControlApi, *words: str) -> int:
    url = f"https://{host}:{api.port}"
    key = {"SLUICE_API_KEY": api.admin_key}
    return run("agents", ["list", "--url", url, "--json", *words], key)


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
            assert "--ca FILE names the authority" in capsys.readouterr().err
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
        # Its certificate is for the address, and for no name.
        assert agents_at("localhost", api, "--ca", str(ours.path), *shown) == 1
        assert "not valid for 'localhost'" in capsys.readouterr().err
        for words in ((), ("--ca", str(authority("theirs").path))):
            assert agents(api, *words, *shown) == 1
            assert "--ca FILE names the authority" in capsys.readouterr().err
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
        assert "apply only to https://" in capsys.readouterr().err
