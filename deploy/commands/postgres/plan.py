"""`sluice postgres plan`: prints the SQL of a login role that may read what the policies allow, and
nothing else. Executes none of it."""

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from deploy.commands.policy.sources import Unusable
from deploy.commands.policy.text import AddCommand
from deploy.commands.postgres.permitted import NOT_APPLIED, add_policies, read_permissions
from deploy.commands.postgres.relations import (
    QUERY,
    AccessByName,
    RelationAccess,
    decide,
    parse_relations,
    read_columns,
    row_of,
)
from deploy.commands.postgres.server import add_server, fetch, read_dsn
from deploy.commands.postgres.source import PostgresSource, add_source, read_source
from deploy.commands.postgres.sql_text import identifier, literal, qualified
from policies.definitions.definition import shown
from policies.ground.errors import worded

CONNECTIONS = 20
_ATTRIBUTES = "LOGIN NOCREATEDB NOCREATEROLE NOINHERIT"
_OF_SUPERUSERS = "NOSUPERUSER NOREPLICATION NOBYPASSRLS"
"""Attributes that only a superuser may change. A role that is new may be made with them by
others; `sluice postgres check` finds them at one that was there before."""
_IDLE_SECONDS = 60
_MOST_BYTES = 64 * 1024 * 1024


def add_relations(add_command: AddCommand) -> None:
    """Add the command `relations`."""
    command = add_command("relations", "print the SQL that lists a database's relations")
    command.set_defaults(run=_print_query)


def add(add_command: AddCommand) -> None:
    """Add the command `plan` and its options."""
    command = add_command("plan", "print the SQL of a login role, made from the policies")
    add_source(command)
    add_policies(command)
    add_columns(command)
    group = command.add_argument_group("the relations")
    group.add_argument(
        "--relations",
        metavar="FILE",
        help="read them from a file, not from the server: what the SQL of `sluice postgres "
        "relations` returned there",
    )
    add_server(command)
    command.add_argument(
        "--connections",
        type=_positive,
        default=CONNECTIONS,
        metavar="N",
        help=f"the role's limit of connections, one for each of an agent's (default {CONNECTIONS})",
    )
    command.add_argument(
        "--revoke-public",
        action="store_true",
        help="also take from PUBLIC what lets every login make temporary tables and other objects; "
        "other users of the database lose it too",
    )
    command.add_argument("--json", action="store_true", help="print what is granted, as JSON")
    command.set_defaults(run=_run)


def add_columns(command: argparse.ArgumentParser) -> None:
    """Add the option `--columns`."""
    command.add_argument(
        "--columns",
        action="append",
        default=[],
        metavar="SCHEMA.RELATION=COLUMN,…",
        help="only these columns of a relation; may be repeated",
    )


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"`{text:.40}` is not a number of at least 1")
    return int(text)


def _print_query(_options: argparse.Namespace) -> int:
    print(QUERY)
    return 0


def _run(options: argparse.Namespace) -> int:
    source = read_source(options)
    permissions = read_permissions(options)
    columns = read_columns(options.columns)
    if options.relations is not None:
        text = _read(Path(options.relations))
    else:
        text = fetch(read_dsn(options), source.database).relations
    access = decide(parse_relations(text), source, permissions, columns)
    if options.json:
        print(json.dumps({"login": source.login, "relations": [*map(row_of, access.values())]}))
        return 0
    for line in plan_lines(
        source, access, options.role, options.connections, revoke_public=options.revoke_public
    ):
        print(line)
    return 0


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise Unusable(f"`{path}` is larger than {_MOST_BYTES:,} bytes")
        return content.decode()
    except OSError as error:
        raise Unusable(f"`{path}` can't be read: {worded(error)}") from error
    except UnicodeDecodeError:
        raise Unusable(f"`{path}` is not UTF-8") from None


def role_settings(source: PostgresSource, access: AccessByName) -> dict[str, str]:
    """Return the settings of the login role, by name. The sidecar sends the first ones itself at
    login; they hold here too if something else logs in as the role."""
    return {
        "max_parallel_workers_per_gather": "0",  # what a worker reads, its leader doesn't show
        "statement_timeout": f"{source.statement_seconds}s",
        "idle_in_transaction_session_timeout": f"{_IDLE_SECONDS}s",
        "default_transaction_read_only": "on",
        "row_security": "on",
        "search_path": ", ".join(map(identifier, [*_schemas(access), "pg_temp"])),
    }


def plan_lines(
    source: PostgresSource,
    access: AccessByName,
    roles: Iterable[str],
    connections: int = CONNECTIONS,
    *,
    revoke_public: bool = False,
) -> Iterator[str]:
    """Yield the lines of the SQL. It is one transaction, and may run again after the policies or
    the relations have changed: what is no longer allowed is revoked."""
    login = identifier(source.login)
    yield f"-- The login {shown(source.login)} of the source {shown(source.alias)}."
    yield f"-- It may read what the policies allow the role {', '.join(map(shown, roles))}."
    yield "-- Run this as a superuser, or as the owner of the database and its relations with"
    yield "-- CREATEROLE. Then set the password in psql by `\\password`, which no log shows."
    yield f"-- {NOT_APPLIED}"
    yield ""
    yield "BEGIN;"
    make = (
        "BEGIN IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = "
        f"{literal(source.login)}) THEN\n"
        f"  CREATE ROLE {login} WITH {_OF_SUPERUSERS};\nEND IF; END"
    )
    # As a string constant: a dollar quote could be ended by the role's name.
    yield f"DO {literal(make)};"
    yield f"ALTER ROLE {login} WITH {_ATTRIBUTES} CONNECTION LIMIT {connections};"
    for name, value in role_settings(source, access).items():
        yield f"ALTER ROLE {login} SET {name} = {_setting(name, value)};"
    yield ""
    yield from _revocations(source, access, login)
    yield ""
    yield f"GRANT CONNECT ON DATABASE {identifier(source.database)} TO {login};"
    for schema in _schemas(access):
        yield f"GRANT USAGE ON SCHEMA {identifier(schema)} TO {login};"
    for each in access.values():
        yield from _grant(each, login)
    yield ""
    yield from _of_public(source, access, revoke_public)
    yield "COMMIT;"


def _setting(name: str, value: str) -> str:
    # A list of names, each quoted already: as one string it would be one name.
    return value if name == "search_path" else literal(value)


def _schemas(access: AccessByName) -> list[str]:
    return sorted({each.relation.name[0] for each in access.values() if each.granted})


def _revocations(source: PostgresSource, access: AccessByName, login: str) -> Iterator[str]:
    """Yield what takes away the rights of an earlier plan."""
    yield "-- What an earlier plan granted."
    yield f"REVOKE ALL ON DATABASE {identifier(source.database)} FROM {login};"
    for schema in sorted({name for name, _ in access}):
        quoted = identifier(schema)
        yield f"REVOKE ALL ON SCHEMA {quoted} FROM {login};"
        yield f"REVOKE ALL ON ALL TABLES IN SCHEMA {quoted} FROM {login};"
        yield f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA {quoted} FROM {login};"


def _grant(access: RelationAccess, login: str) -> Iterator[str]:
    name = qualified(*access.relation.name)
    if access.granted:
        columns = ""
        if access.columns is not None:
            columns = f" ({', '.join(map(identifier, access.columns))})"
        policy = shown(access.policy or "")
        yield f"-- {shown(access.source_id)} at {access.level}, by policy {policy}"
        yield f"GRANT SELECT{columns} ON {name} TO {login};"
    elif access.barred_by is not None:
        barred = shown(".".join(access.barred_by))
        yield (
            f"-- Not granted: {shown('.'.join(access.relation.name))}, through which the login "
            f"would read {barred}, which no policy allows."
        )


def _of_public(source: PostgresSource, access: AccessByName, revoke: bool) -> Iterator[str]:
    """Yield what takes from PUBLIC the right to make objects: as comments unless `revoke`, since it
    concerns every user of the database."""
    if revoke:
        yield "-- What every role has. Other users of the database lose it too."
    else:
        yield "-- Every role has these rights, so the login has them too. To take them from all"
        yield "-- users of the database, run these lines (--revoke-public):"
    mark = "" if revoke else "-- "
    yield f"{mark}REVOKE TEMPORARY ON DATABASE {identifier(source.database)} FROM PUBLIC;"
    if any(schema == "public" for schema, _ in access):
        yield f'{mark}REVOKE CREATE ON SCHEMA "public" FROM PUBLIC;'
    yield ""
