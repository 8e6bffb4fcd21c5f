"""`sluice postgres identity`: prints the SQL of the functions by which row policies know for whom a
transaction reads, and of a key. Executes none of it.

`policies/ground/postgres_identity.py` signs the values that these functions verify.
"""

import argparse
import secrets
from collections.abc import Iterator
from pathlib import Path

from deploy.commands.policy.sources import Unusable
from deploy.commands.policy.text import AddCommand
from deploy.commands.postgres.sql_text import identifier
from policies.ground.postgres_identity import (
    KEY_BYTES,
    LONGEST_LIFETIME_SECONDS,
    SETTING,
    UnusableKey,
    check_key_id,
    hmac_pads,
    parse_key,
)
from policies.ground.process import secret_file

MOST_BYTES = 8192
"""The longest value that is looked at."""
# INVARIANT: of the value, only the key's id and the MAC are used before the MAC has been compared.
# What it covers was written by a sidecar, so that the casts below it can't fail.
IDENTITY_BODY = f"""
DECLARE
  value pg_catalog.text := pg_catalog.current_setting('{SETTING}', true);
  part pg_catalog.text[];
  inner_pad pg_catalog.bytea;
  outer_pad pg_catalog.bytea;
  mac pg_catalog.bytea;
  begun pg_catalog.numeric := extract(epoch FROM pg_catalog.transaction_timestamp());
BEGIN
  IF value IS NULL OR octet_length(value) > {MOST_BYTES} THEN
    RETURN;
  END IF;
  part := string_to_array(value, ':');
  IF cardinality(part) <> 8 OR part[1] <> '1' OR part[8] !~ '^[0-9a-f]{{64}}$' THEN
    RETURN;
  END IF;
  SELECT k.inner_pad, k.outer_pad INTO inner_pad, outer_pad
  FROM sluice.identity_keys AS k WHERE k.key_id = part[2];
  IF NOT FOUND THEN
    RETURN;
  END IF;
  mac := sha256(outer_pad || sha256(inner_pad || convert_to(left(value, -65), 'UTF8')));
  -- Digests under the secret key are compared, not the MACs: how far two digests agree tells
  -- nothing about how far the MACs do.
  IF sha256(inner_pad || decode(part[8], 'hex')) <> sha256(inner_pad || mac) THEN
    RETURN;
  END IF;
  IF part[3]::pg_catalog.int8 <> pg_backend_pid()
     OR part[4]::pg_catalog.int8 NOT BETWEEN begun AND begun + {LONGEST_LIFETIME_SECONDS} THEN
    RETURN;
  END IF;
  user_id := convert_from(decode(part[6], 'hex'), 'UTF8');
  session_id := nullif(convert_from(decode(part[7], 'hex'), 'UTF8'), '');
  state := part[5];
END
"""
"""The body of `sluice.identity()`. `sluice postgres check` knows it by this text."""
USER_BODY = "SELECT i.user_id FROM sluice.identity() AS i"
VERIFIED_BODY = "SELECT i.user_id FROM sluice.identity() AS i WHERE i.state = 'verified'"
BODIES = (IDENTITY_BODY, USER_BODY, VERIFIED_BODY)

# Neither inlined nor run by a parallel worker, whose process id is another.
_OPTIONS = "STABLE SECURITY DEFINER PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp"

_SCHEMA = f"""\
-- The identity of the user for whom the sidecar's transaction reads, for row policies.
-- Run it as the role that shall own it, once in each database; it fails if it was run before.
BEGIN;
CREATE SCHEMA sluice;
REVOKE ALL ON SCHEMA sluice FROM PUBLIC;

-- The keys in the form that HMAC-SHA-256 (RFC 2104) uses: `sluice postgres identity --key-file`
-- prints the SQL that adds one. A dump of the database holds them:
-- pg_dump --exclude-table-data=sluice.identity_keys
CREATE TABLE sluice.identity_keys (
  key_id text PRIMARY KEY CHECK (key_id ~ '^[a-z0-9_-]{{1,32}}$'),
  inner_pad bytea NOT NULL CHECK (octet_length(inner_pad) = 64),
  outer_pad bytea NOT NULL CHECK (octet_length(outer_pad) = 64)
);
REVOKE ALL ON sluice.identity_keys FROM PUBLIC;

-- All three are NULL if anything is wrong with the value of the setting `{SETTING}`.
CREATE FUNCTION sluice.identity(OUT user_id text, OUT session_id text, OUT state text)
LANGUAGE plpgsql {_OPTIONS}
AS $sluice${IDENTITY_BODY}$sluice$;

-- The user, whether or not a token has proved it. While users are `claimed`, the agent names them.
CREATE FUNCTION sluice.user_id() RETURNS text
LANGUAGE sql {_OPTIONS}
AS $sluice${USER_BODY}$sluice$;

-- The user if a token has proved it, else NULL.
CREATE FUNCTION sluice.verified_user_id() RETURNS text
LANGUAGE sql {_OPTIONS}
AS $sluice${VERIFIED_BODY}$sluice$;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sluice FROM PUBLIC;
"""


def add(add_command: AddCommand) -> None:
    """Add the command `identity` and its options."""
    command = add_command("identity", "print the SQL by which row policies know the user")
    command.add_argument(
        "--login", metavar="NAME", help="the role with which the sidecar logs in; required without "
        "--key-file",
    )  # fmt: skip
    command.add_argument(
        "--key-file",
        metavar="FILE",
        help="print the SQL that adds this key instead; the file is made if it does not exist",
    )
    command.add_argument(
        "--key-id", metavar="ID", default="1", help="the key's id in signed values (default 1)"
    )
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.key_file is not None:
        lines = key_lines(options.key_id, _key(Path(options.key_file)))
    elif options.login:
        lines = schema_lines(options.login)
    else:
        raise Unusable("name the sidecar's role, --login NAME, or a key, --key-file FILE")
    for line in lines:
        print(line)
    return 0


def _key(path: Path) -> bytes:
    """Return the key in the file; make the file if it is absent. Raises `Unusable`."""
    try:
        content = secret_file.read(path)
        if content is None:
            key = secrets.token_bytes(KEY_BYTES)
            secret_file.write(path, f"{key.hex()}\n".encode())
            return key
        return parse_key(content.decode("ascii"))
    except UnicodeDecodeError:
        raise Unusable(f"--key-file: `{path}` is not a key") from None
    except (secret_file.UnusableFile, UnusableKey) as error:
        raise Unusable(f"--key-file: {error}") from error


def schema_lines(login: str) -> Iterator[str]:
    """Yield the lines of the SQL that makes the schema `sluice`, whose functions the role `login`
    may call."""
    quoted = identifier(login)
    yield _SCHEMA
    yield f"GRANT EXECUTE ON FUNCTION sluice.user_id(), sluice.verified_user_id() TO {quoted};"
    # Default privileges may have opened the table when it was made.
    yield f"REVOKE ALL ON sluice.identity_keys FROM {quoted};"
    yield "COMMIT;"
    yield ""
    yield "-- A row policy. By `(SELECT …)`, the server verifies once a statement, not once a row:"
    yield "-- ALTER TABLE public.tickets ENABLE ROW LEVEL SECURITY;"
    yield f"-- CREATE POLICY of_the_user ON public.tickets FOR SELECT TO {quoted}"
    yield "--   USING (owner_id = (SELECT sluice.user_id()));"


def key_lines(key_id: str, key: bytes) -> Iterator[str]:
    """Yield the lines of the SQL that adds a key. Raises `Unusable`."""
    try:
        check_key_id(key_id)
    except UnusableKey as error:
        raise Unusable(f"--key-id: {error}") from error
    inner, outer = (pad.hex() for pad in hmac_pads(key))
    yield "-- It holds the key: pipe it into psql, and keep it out of files and the server's log."
    yield "INSERT INTO sluice.identity_keys (key_id, inner_pad, outer_pad)"
    yield f"VALUES ('{key_id}', decode('{inner}', 'hex'), decode('{outer}', 'hex'));"
