"""Formats the text that `sluice up` prints when everything is up: addresses, keys, and commands to
paste."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from deploy.local.provision import AGENT_ID, ROLE, FirstStart
from deploy.local.samples import COLLECTIONS, NEAREST, POSTGRES_DATABASE, RELATIONS
from deploy.local.settings import DATA_DIR, PORTS, Address, UpSettings

SENSITIVITY = {collection.name: collection.sensitivity for collection in COLLECTIONS}
INDENT = " " * 15
UNRESOLVED = f"""\
{INDENT}A browser that can't find this name (Safari) needs this line in /etc/hosts:
{INDENT}127.0.0.1 {{host}}
{INDENT}No sign-in at 127.0.0.1 itself: every local server would get the cookie."""
TEXT = """
Sluice is up. Ctrl-C drains and stops everything.

  for agents   http://{source}   the sample Chroma, behind the sidecar{more_sources}
               http://{sidecar}   the sidecar: POST /v1/context/evaluate
  for people   {console}
  control API  http://{control}   described at /docs
  the source   http://{chroma}   Chroma itself; in production, only the sidecar reaches it{itself}

  agent key       {agent_key}   agent `{agent}`, role `{role}`
  admin key       {admin_key}
  superadmin key  {superadmin_key}

  data         {data}
  policies     {policies}   edit one; it takes effect within two seconds

Paste into another terminal, in this folder:
{doubt}
# ALLOW: the handbook has low sensitivity, and the role may read it: documents come back
{allow}

# DENY: payroll is critical: the sidecar stops the query and says why
{deny}
{grpc}{sql}
# VERIFY: both decisions are in the audit trail, and its hash chain is intact
{verify}

# EVENTS: the last decisions as a table; `{sluice} --help` lists the other commands
{events}
{export}
The same decisions without a data source, as an agent framework can request them:

# ALLOW
{evaluate_allow}

# DENY
{evaluate_deny}
"""
GRPC = """
# ALLOW by gRPC: the same handbook in Milvus, by its own client: entities come back
{allow}

# DENY by gRPC: the client raises an exception with the sidecar's reason
{deny}
"""
SQL = """
# ALLOW by SQL: the role may read `public.tickets`: rows come back
{allow}

# DENY by SQL: `hr.salaries` counts as payroll, so the sidecar stops the statement and says why
{deny}
"""
OWN_POLICIES = f"""\
The answers below are those of Sluice's sample policies. With yours (SLUICE_POLICY_DIR), a read is
denied unless they let the role `{ROLE}` read `handbook`.
"""
EXPORT = """
# For the other commands, in each terminal that uses them: this control API, and its admin key
export SLUICE_URL=http://{url} SLUICE_KEY_FILE={file}
"""
_ASSUMED_FILE = f"{DATA_DIR}/first-start.json"
KEPT_ELSEWHERE = "where you put it"
JSON = "application/json"


class WelcomeKeys(NamedTuple):
    """The three keys as the welcome text shows them: `agent`, `admin` and `superadmin`.
    `send_agent` and `send_admin` stand in its commands, and may be shell expressions that read a
    file."""

    agent: str
    admin: str
    superadmin: str
    send_agent: str
    send_admin: str


def shown_keys(agent_key: str, first: FirstStart | None) -> WelcomeKeys:
    """Return the keys themselves, for output to the terminal of the person who started Sluice."""
    admin = first.admin_key if first else KEPT_ELSEWHERE
    superadmin = (first and first.superadmin_key) or KEPT_ELSEWHERE
    return WelcomeKeys(agent_key, admin, superadmin, agent_key, admin)


def hidden_keys(data_dir: Path, first: FirstStart | None) -> WelcomeKeys:
    """Return the names of the keys' files in place of the keys, for output that may go to a log
    (`control_api/CONTRACT.md`, First start). The commands then read the keys from these files."""
    agent, file = data_dir / "agent.key", data_dir / "first-start.json"
    # The shell reads the file when the command runs, so the text itself holds no secret.
    read_agent = f"$(cat {shlex.quote(str(agent))})"
    if first is None:
        elsewhere = KEPT_ELSEWHERE
        return WelcomeKeys(f"in {agent}", elsewhere, elsewhere, read_agent, elsewhere)
    pattern = r's/.*"admin_key": *"\([^"]*\)".*/\1/p'
    read_admin = f"$(sed -n '{pattern}' {shlex.quote(str(file))})"
    superadmin = f"in {file}" if first.superadmin_key else KEPT_ELSEWHERE
    return WelcomeKeys(f"in {agent}", f"in {file}", superadmin, read_agent, read_admin)


def console(settings: UpSettings, address: str | None, link: str | None) -> str:
    """Return the lines of the welcome text about the console. `address` is its address at its own
    host name, None if the settings give another address. `link` signs a browser in once; it may be
    shown only on a terminal."""
    plain = address or os.environ.get("SLUICE_CONSOLE_URL") or f"http://{settings.control_listen}"
    shown = f"{plain}/console   the console"
    if link is not None:
        shown = f"{link}\n{INDENT}the console: this link signs you in, once, for ten minutes"
    host = urlsplit(address or "").hostname
    if host is None:
        return shown
    return f"{shown}\n{UNRESOLVED.format(host=host)}"


def text(
    settings: UpSettings, keys: WelcomeKeys, policies: str, console: str, *, own: bool = False
) -> str:
    """Format the welcome text. `console` are the lines about the console; `own` says that the
    policies are not the samples."""
    milvus, milvus_source = settings.milvus_listen, settings.milvus_source_listen
    postgres, postgres_source = settings.postgres_listen, settings.postgres_source_listen
    return TEXT.format(
        console=console,
        doubt=OWN_POLICIES if own else "",
        source=settings.source_listen,
        sidecar=settings.sidecar_listen,
        control=settings.control_listen,
        chroma=settings.chroma_listen,
        more_sources=_line(milvus_source, "the sample Milvus, behind the sidecar: gRPC")
        + _line(postgres_source, "the sample PostgreSQL, behind the sidecar", scheme="postgres"),
        itself=_line(milvus, "Milvus itself")
        + _line(postgres, "PostgreSQL itself", scheme="postgres"),
        grpc=_grpc(milvus_source),
        sql=_sql(postgres_source),
        agent_key=keys.agent,
        agent=AGENT_ID,
        role=ROLE,
        admin_key=keys.admin,
        superadmin_key=keys.superadmin,
        data=settings.data_dir,
        policies=policies,
        allow=_query(settings.source_listen, "handbook"),
        deny=_query(settings.source_listen, "payroll"),
        sluice=_sluice(),
        events=_events(settings, keys),
        export=_export(settings, keys),
        verify=_request(settings.control_listen, "/v1/audit/verify", keys.send_admin),
        evaluate_allow=_evaluate(settings.sidecar_listen, keys.send_agent, "handbook"),
        evaluate_deny=_evaluate(settings.sidecar_listen, keys.send_agent, "payroll"),
    )


def _sluice() -> str:
    """Return the command that runs this installation's `sluice`, which need not be on the PATH,
    quoted for a shell."""
    return shlex.quote(_short(str(Path(sysconfig.get_path("scripts"), "sluice"))))


def _events(settings: UpSettings, keys: WelcomeKeys) -> str:
    file = _admin_file(settings, keys)
    words = ["--url", f"http://{settings.control_listen}", "--key-file", file, "--limit", "5"]
    return f"{_sluice()} events {shlex.join(words)}"


def _export(settings: UpSettings, keys: WelcomeKeys) -> str:
    """Return the commands that set the control API's address and key file for the guides' commands;
    empty if they are those that the guides assume."""
    file = _admin_file(settings, keys)
    if (settings.control_listen.port, file) == (PORTS["control_listen"], _ASSUMED_FILE):
        return ""
    return EXPORT.format(url=settings.control_listen, file=shlex.quote(file))


def _admin_file(settings: UpSettings, keys: WelcomeKeys) -> str:
    if keys.admin == KEPT_ELSEWHERE:
        return KEPT_ELSEWHERE
    return _short(str(settings.data_dir / "first-start.json"))


def _query(source: Address, collection: str) -> str:
    """Return a command that queries the data source with Chroma's own client. Only the port leads
    to the sidecar."""
    return _python(
        "import chromadb; "
        f"kb = chromadb.HttpClient('{source.host}', {source.port}); "
        f"found = kb.get_collection('{collection}').query(query_embeddings=[{NEAREST}]); "
        "print(*found['documents'][0], sep='\\n')"
    )


def _line(address: Address | None, meaning: str, *, scheme: str = "http") -> str:
    return "" if address is None else f"\n{INDENT}{scheme}://{address}   {meaning}"


def _grpc(source: Address | None) -> str:
    """Return the commands that search the sample Milvus; empty if there is none."""
    if source is None:
        return ""
    return GRPC.format(allow=_search(source, "handbook"), deny=_search(source, "payroll"))


def _search(source: Address, collection: str) -> str:
    """Return a command that searches the sample Milvus with Milvus' own client."""
    return _python(
        "import pymilvus; "
        f"kb = pymilvus.MilvusClient('http://{source}'); "
        f"found = kb.search('{collection}', [{NEAREST}], output_fields=['text']); "
        "print(*(each['entity']['text'] for each in found[0]), sep='\\n')"
    )


def _sql(source: Address | None) -> str:
    """Return the commands that read the sample PostgreSQL; empty if there is none."""
    if source is None:
        return ""
    allowed, denied = (f"SELECT * FROM {relation.name}" for relation in RELATIONS)  # noqa: S608 - to show
    return SQL.format(allow=_statement(source, allowed), deny=_statement(source, denied))


def _statement(source: Address, statement: str) -> str:
    """Return a command that runs a statement in the sample PostgreSQL, with `psql` if it is
    installed, else with Python's client. The sidecar takes any user name, and no password."""
    place = f"host={source.host} port={source.port} dbname={POSTGRES_DATABASE} user=agent"
    if shutil.which("psql"):
        return f'psql "{place}" -c "{statement}"'
    return _python(
        "import psycopg; "
        f"db = psycopg.connect('{place}'); "
        f"print(*db.execute('{statement}'), sep='\\n')"
    )


def _evaluate(sidecar: Address, key: str, source_id: str) -> str:
    body = {
        "agent_role": ROLE,
        "agent_id": AGENT_ID,
        "user_id": "you",
        "source_id": source_id,
        "sensitivity_level": SENSITIVITY[source_id],
    }
    return _request(sidecar, "/v1/context/evaluate", key, json.dumps(body))


def _request(address: Address, path: str, key: str, body: str | None = None) -> str:
    """Return a command that sends a request, with `curl` if it is installed, else with Python.
    `key` stands in double quotes in it, so it may be a shell expression that reads a file; a key
    itself has no characters that are special to a shell."""
    url = f"http://{address}{path}"
    # A minimal container may lack curl, but has this Python.
    if shutil.which("curl"):
        # `-w`, because responses end without a line break.
        words = ["curl", "-sS", "-w", "\\n", url]
        if body:
            words += ["-H", "Content-Type: application/json", "-d", body]
        return f'{shlex.join(words)} -H "X-API-Key: {key}"'
    data = f"{body!r}.encode()" if body else "None"
    headers = f"{{'X-API-Key': os.environ['KEY'], 'Content-Type': {JSON!r}}}"
    return f'KEY="{key}" ' + _python(
        f"import os, urllib.request as r; request = r.Request({url!r}, {data}, {headers}); "
        "print(r.urlopen(request).read().decode())"
    )


def _python(code: str) -> str:
    python = shlex.quote(_short(sys.executable))
    # Double quotes keep the code readable, but are right only if the shell expands nothing in it.
    plain = not set('"$`!') & set(code)
    return f'{python} -c "{code}"' if plain else f"{python} -c {shlex.quote(code)}"


def _short(path: str) -> str:
    # The text says "in this folder": a path below it is shorter to read when relative.
    here = os.path.relpath(path)
    return path if here.startswith("..") else here
