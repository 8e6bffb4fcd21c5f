"""Where the sidecar's AWS credentials come from, and how they are renewed."""

import asyncio
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from policies.ground.errors import SluiceError
from sidecar.protocols.shared.aws_signing import KEPT_SECONDS, AwsSigner
from sidecar.settings.model import Aws
from tests.sidecar.protocols.aws import (
    REGION,
    SECRET,
    credentials_file,
    fault,
)
from tests.sidecar.protocols.shared.signing_front import SECRETS, signing_front


async def test_a_session_token_is_sent_and_signed(tmp_path: Path) -> None:
    file = credentials_file(tmp_path, more="aws_session_token = temporary\n")
    async with signing_front(tmp_path, Aws(region=REGION, credentials_file=file)) as front:
        await front.ask("GET", "/lake/a", "x-amz-security-token: agents-own")
        [seen] = front.upstream.seen
        assert seen.values("x-amz-security-token") == ["temporary"]
        assert fault(seen, "s3", SECRETS) is None


async def test_a_changed_credentials_file_is_used_within_a_minute(tmp_path: Path) -> None:
    file = credentials_file(tmp_path)
    async with signing_front(tmp_path, Aws(region=REGION, credentials_file=file)) as front:
        await front.ask("GET", "/lake/a")
        credentials_file(tmp_path, "AKIANEW", "new")
        await front.ask("GET", "/lake/a")
        front.ticking.ahead += KEPT_SECONDS
        await front.ask("GET", "/lake/a")
        old, cached, new = front.upstream.seen
        assert fault(old, "s3", SECRETS) is None
        assert fault(cached, "s3", SECRETS) is None
        assert fault(new, "s3", {"AKIANEW": "new"}) is None


async def test_a_profile_names_keys_and_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "[lake]\naws_access_key_id = AKIALAKE\naws_secret_access_key = s\n"
    config = tmp_path / "config"
    config.write_text("[profile lake]\nregion = ap-south-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    aws = Aws(profile="lake", credentials_file=credentials_file(tmp_path, more=more))
    async with signing_front(tmp_path, aws) as front:
        await front.ask("GET", "/lake/a")
        [seen] = front.upstream.seen
        assert fault(seen, "s3", {"AKIALAKE": "s"}, "ap-south-1") is None


async def test_credentials_that_renew_themselves_are_renewed_by_botocore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process that issues keys for a few seconds: botocore runs it again each time they are
    # about to expire, and the event loop never waits for it.
    counter = tmp_path / "asked"
    script = tmp_path / "keys.py"
    script.write_text(
        "import datetime, json, pathlib\n"
        f"asked = pathlib.Path({str(counter)!r})\n"
        "count = len(asked.read_text()) + 1 if asked.exists() else 1\n"
        "asked.write_text('x' * count)\n"
        "end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30)\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': f'AKIA{count}', 'SecretAccessKey': 's',\n"
        "                  'SessionToken': 't', 'Expiration': end.isoformat()}))\n"
    )
    config = tmp_path / "config"
    config.write_text(f'[profile p]\ncredential_process = "{sys.executable}" "{script}"\n')
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    async with signing_front(tmp_path, Aws(region=REGION, profile="p")) as front:
        await asyncio.gather(*(front.ask("GET", "/lake/a") for _ in range(5)))
        front.ticking.ahead += KEPT_SECONDS
        await front.ask("GET", "/lake/a")
        *first, last = front.upstream.seen
        used = {seen.values("authorization")[0].split("/")[0] for seen in first}
        assert len(used) == 1
        assert not last.values("authorization")[0].startswith(used.pop())


@pytest.mark.parametrize("lacking", ["credentials", "region", "profile"])
async def test_without_credentials_nothing_is_forwarded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    lacking: str,
) -> None:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    file = credentials_file(tmp_path)
    if lacking == "credentials":
        file.write_text("")
    aws = Aws(
        region=None if lacking == "region" else REGION,
        profile="nobody" if lacking == "profile" else None,
        credentials_file=file,
    )
    async with signing_front(tmp_path, aws) as front:
        with caplog.at_level(logging.WARNING):
            answered = await front.ask("GET", "/lake/a")
        assert answered.status == 502
        assert front.upstream.begun == []
        assert SECRET not in caplog.text
        assert {"region": "aws.region", "profile": "nobody"}.get(lacking, lacking) in caplog.text
        # Missing credentials are looked up again.
        credentials_file(tmp_path)
        assert (await front.ask("GET", "/lake/a")).status == (
            200 if lacking == "credentials" else 502
        )


@pytest.mark.deep(
    stands_in="tests/architecture/test_large_libraries.py::test_botocore_is_loaded_with_the_protocols_that_sign_and_no_other"
)
def test_the_library_is_loaded_only_if_a_source_needs_it() -> None:
    code = """
import sys, sidecar.serve
from policies.ground.addresses import ListenAddress
from sidecar.protocols.registry import MODULES, load_protocol
from sidecar.settings.model import AWS_KINDS, Source
def load(kind):
    load_protocol(Source("a", kind, "http://a", ListenAddress("127.0.0.1", 0), "low"), lambda: 0.0)
    return "botocore" in sys.modules
assert not any(load(kind) for kind in MODULES if kind not in AWS_KINDS)
assert all(load(kind) for kind in AWS_KINDS)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_sidecar_without_the_library_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(SluiceError, match=r"sluice_governance-.*\.whl\[aws\]"):
        AwsSigner(Aws(), "s3", time.monotonic)
