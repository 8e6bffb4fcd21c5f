"""Settings: defaults, complaints, and that no secret is repeated."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from control_api import settings
from control_api.command_line import environ_of
from control_api.settings import names, read
from policies.ground.addresses import ListenAddress
from policies.ground.settings import SettingsError


def complaints(**environ: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(environ)
    return caught.value.complaints


def test_the_defaults_are_the_contract_s() -> None:
    found = read({})
    assert found.data_dir == Path(".sluice")
    assert found.database_url == "sqlite+aiosqlite:///.sluice/sluice.db"
    assert found.control_listen == ListenAddress("127.0.0.1", 8700)
    assert found.policy_dir is None
    assert (found.require_agent_id, found.session_ttl_minutes) == (False, 1440)
    assert (found.superadmin_key, found.metrics_listen, found.log_level) == (None, None, "info")


def test_several_workers_need_postgresql() -> None:
    assert read({}).workers == 1
    (told,) = complaints(SLUICE_WORKERS="4")
    assert told == "SLUICE_WORKERS: more than 1 needs PostgreSQL in SLUICE_DATABASE_URL"
    found = read({"SLUICE_WORKERS": "4", "SLUICE_DATABASE_URL": "postgresql+asyncpg://a@b/c"})
    assert found.workers == 4


def test_the_setting_for_a_pooler_needs_postgresql() -> None:
    (told,) = complaints(SLUICE_DATABASE_POOLED="1")
    assert told == "SLUICE_DATABASE_POOLED: needs PostgreSQL in SLUICE_DATABASE_URL"
    found = read(
        {"SLUICE_DATABASE_POOLED": "1", "SLUICE_DATABASE_URL": "postgresql+asyncpg://a@b/c"}
    )
    assert found.database.pooled


def test_the_settings_of_a_provider_must_be_complete() -> None:
    whole = {
        "SLUICE_OIDC_ISSUER": "https://id.example.com/realms/staff",
        "SLUICE_OIDC_CLIENT_ID": "sluice",
        "SLUICE_OIDC_GROUPS": "auditors=read@default",
        "SLUICE_CONSOLE_URL": "https://sluice.example.com",
    }
    found = read(whole).oidc
    assert found is not None
    assert found.redirect_uri == "https://sluice.example.com/console/oidc/callback"
    assert (found.client_secret, found.scopes, found.groups_claim) == (None, (), "groups")
    assert read({"SLUICE_CONSOLE_URL": "https://sluice.example.com"}).oidc is None
    for name in whole:
        (told,) = complaints(**{each: text for each, text in whole.items() if each != name})
        assert told == f"{name}: is needed if any SLUICE_OIDC_ setting is set"
    for name, value in (
        ("ISSUER", "http://id.example.com"),
        ("ISSUER", "https://user:password@id.example.com"),
        ("ISSUER", "https://id.example.com/#a"),
        ("ISSUER", "https://id.example.com/?a=b"),
        ("ISSUER", "https://id.example.com/ä"),
        ("SCOPES", "profile email"),
        ("SCOPES", 'openid "'),
        ("GROUPS", "auditors=root@default"),
        ("CA", "/nowhere/at/all"),
    ):
        (told,) = complaints(**{**whole, f"SLUICE_OIDC_{name}": value})
        assert told.startswith(f"SLUICE_OIDC_{name}: ")


def test_the_client_s_secret_comes_from_a_file_and_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("a secret of the client\n")
    found = read(
        {
            "SLUICE_OIDC_ISSUER": "https://id.example.com",
            "SLUICE_OIDC_CLIENT_ID": "sluice",
            "SLUICE_OIDC_CLIENT_SECRET_FILE": str(file),
            "SLUICE_OIDC_SCOPES": "openid, groups",
            "SLUICE_OIDC_GROUPS": "auditors=read@default",
            "SLUICE_CONSOLE_URL": "https://sluice.example.com",
        }
    )
    assert found.oidc is not None
    assert found.oidc.client_secret == "a secret of the client"
    assert found.oidc.scopes == ("openid", "groups")
    assert "a secret" not in repr(found) + repr(found.oidc)


def test_an_empty_value_is_an_absent_one() -> None:
    assert read(dict.fromkeys(names(), "")) == read({})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLUICE_CONTROL_LISTEN", "8700"),
        ("SLUICE_CONTROL_LISTEN", "127.0.0.1:99999"),
        ("SLUICE_METRICS_LISTEN", "::1:80"),
        ("SLUICE_POLICY_DIR", "/nowhere/at/all"),
        ("SLUICE_SUPERADMIN_KEY", "x" * 31),
        ("SLUICE_REQUIRE_AGENT_ID", "true"),
        ("SLUICE_SESSION_TTL_MINUTES", "0"),
        ("SLUICE_SESSION_TTL_MINUTES", "1.5"),
        ("SLUICE_SESSION_TTL_MINUTES", "99999999999999"),
        ("SLUICE_LOG_LEVEL", "loud"),
        ("SLUICE_LOG_FORMAT", "xml"),
        ("SLUICE_DATABASE_URL", "postgresql://host/db"),
        ("SLUICE_DATABASE_CONNECTIONS", "1"),
        ("SLUICE_DATABASE_SECONDS", "0"),
        ("SLUICE_DATABASE_SECONDS", "ten"),
        ("SLUICE_WORKERS", "0"),
        ("SLUICE_WORKERS", "2"),
        ("SLUICE_WORKERS", "many"),
        ("SLUICE_DATADIR", "/tmp"),
        ("SLUICE_WHATEVER", "1"),
        ("SLUICE_PII_MASKING", "yes"),
        ("SLUICE_REDIS_URL", "127.0.0.1:6379"),
        ("SLUICE_REDIS_URL", "http://127.0.0.1:6379"),
        ("SLUICE_REDIS_URL", "redis://"),
        ("SLUICE_REDIS_URL", "redis://host:99999"),
        ("SLUICE_REDIS_URL", "redis://a:1,b:2"),
        ("SLUICE_REDIS_URL", "redis://host/name"),
        ("SLUICE_REDIS_URL", "redis://host?db=1"),
        ("SLUICE_REDIS_URL", "redis://host?ssl_ca_certs=/ca"),
        ("SLUICE_REDIS_URL", "rediss://host?ssl_cert_reqs=none"),
        ("SLUICE_REDIS_URL", "redis+cluster://a:1,b:2/3"),
        ("SLUICE_REDIS_URL", "redis://user:pass#word@host"),
    ],
)
def test_an_unusable_value_is_refused_with_a_message_that_names_it(name: str, value: str) -> None:
    (complaint,) = complaints(**{name: value})
    assert complaint.startswith(f"{name}: ")


def test_all_faults_are_reported_at_once() -> None:
    assert len(complaints(SLUICE_LOG_LEVEL="x", SLUICE_CONTROL_LISTEN="x", SLUICE_NOPE="x")) == 3


def test_settings_of_sidecars_and_other_commands_are_ignored() -> None:
    read(
        {
            "SLUICE_SIDECAR_SPOOL__MODE": "durable",
            "SLUICE_MIGRATE_DATABASE_URL": "x",
            "OTHER": "x",
        }
    )


def test_no_message_and_no_repr_shows_a_secret() -> None:
    short = "hunter2-hunter2"
    assert short not in "".join(complaints(SLUICE_SUPERADMIN_KEY=short))
    url = "mysql://u:hunter2@h/d"
    assert "hunter2" not in "".join(complaints(SLUICE_DATABASE_URL=url))
    for url in (
        "redis://u:hunter2#@h",
        "redis://u:hunter2/x@h",
        "redis://u:x?hunter2@h",
        "redis://u:x?hunter2=1@h",
        "redis://u:hunter2@a,b",
        "redis://u:hunter2@h/x",
        "redis://u:hunter2@h?ssl_certfile=/hunter2",
    ):
        assert "hunter2" not in "".join(complaints(SLUICE_REDIS_URL=url))
    found = read(
        {
            "SLUICE_SUPERADMIN_KEY": "s" * 40,
            "SLUICE_REDIS_URL": "rediss://u:hunter2@h/0",
            "SLUICE_DATABASE_URL": "postgresql+asyncpg://u:hunter2@h/d",
        }
    )
    assert "hunter2" not in repr(found)
    assert "ssss" not in repr(found)


def test_every_field_has_a_description() -> None:
    tree = ast.parse(Path(settings.__file__).read_text())
    (body,) = [
        node.body
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "Settings"
    ]
    for field, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign):
            assert _is_sentence(following), ast.unparse(field)


def _is_sentence(node: Any) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and node.value.value.endswith(".")
    )


def test_a_file_gives_a_secret_without_its_newline(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("postgresql+asyncpg://sluice:pass@db/sluice\n")
    found = read({"SLUICE_DATABASE_URL_FILE": str(file), "SLUICE_WORKERS": "2"})
    assert found.database_url == "postgresql+asyncpg://sluice:pass@db/sluice"
    assert found.workers == 2


def test_a_secret_in_a_file_is_checked_like_any_other_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("too-short-a-secret")
    (told,) = complaints(SLUICE_SUPERADMIN_KEY_FILE=str(file))
    assert told == "SLUICE_SUPERADMIN_KEY: must have 32 characters or more"


def test_an_unusable_file_of_a_secret_is_refused_with_a_message(tmp_path: Path) -> None:
    (told,) = complaints(SLUICE_REDIS_URL_FILE=str(tmp_path / "absent"))
    assert told.startswith("SLUICE_REDIS_URL_FILE: `")
    assert "can't be read" in told
    (told,) = complaints(SLUICE_REDIS_URL_FILE=str(tmp_path))
    assert "EISDIR (is a directory)" in told
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (told,) = complaints(SLUICE_REDIS_URL_FILE=str(tmp_path / "bytes"))
    assert "it is not text" in told
    both = {"SLUICE_REDIS_URL": "redis://a", "SLUICE_REDIS_URL_FILE": str(tmp_path / "bytes")}
    (told,) = complaints(**both)
    assert told == "SLUICE_REDIS_URL_FILE: is set, and SLUICE_REDIS_URL too: leave one out"
    # `make-keys` makes what these two name; every other command needs it.
    keys = tmp_path / "keys"
    made = {
        "SLUICE_KEYS_DIR": str(keys),
        "SLUICE_SUPERADMIN_KEY_FILE": str(keys / "superadmin.key"),
    }
    assert len(complaints(**environ_of("serve", made))) == 2
    assert read(environ_of("make-keys", made)).keys_dir is None


def test_only_secrets_come_from_files() -> None:
    (told,) = complaints(SLUICE_WORKERS_FILE="/dev/null")
    assert told.startswith("SLUICE_WORKERS_FILE: there is no such setting")


def test_a_process_listens_for_changes_where_it_can() -> None:
    direct = "postgresql+asyncpg://sluice:pass@db/sluice"
    pooler = "postgresql+asyncpg://sluice:pass@pooler/sluice"
    assert read({}).listen_database_url is None
    assert read({"SLUICE_DATABASE_URL": direct}).listen_database_url == direct
    pooled = {"SLUICE_DATABASE_URL": pooler, "SLUICE_DATABASE_POOLED": "1"}
    assert read(pooled).listen_database_url is None
    found = read({**pooled, "SLUICE_LISTEN_DATABASE_URL": direct})
    assert (found.listen_database_url, found.listen_setting) == (
        direct,
        "SLUICE_LISTEN_DATABASE_URL",
    )
    (told,) = complaints(SLUICE_LISTEN_DATABASE_URL=direct)
    assert told == "SLUICE_LISTEN_DATABASE_URL: needs PostgreSQL in SLUICE_DATABASE_URL"
