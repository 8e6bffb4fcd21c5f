"""What `sluice up` prints once all is up: where, with which keys, and what to paste."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from deploy.local.provision import AGENT_ID, ROLE, FirstStart
from deploy.local.samples import COLLECTIONS, NEAREST
from deploy.local.settings import Address, UpSettings

SENSITIVITY = {collection.name: collection.sensitivity for collection in COLLECTIONS}
TEXT = """
Sluice is up. Ctrl-C drains and stops all of it.

  for agents   http://{source}   the sample Chroma, behind the sidecar
               http://{sidecar}   the sidecar: POST /v1/context/evaluate
  the centre   http://{control}   the control API, described at /docs
  the source   http://{chroma}   Chroma itself; in production only the sidecar reaches it

  agent key       {agent_key}   agent `{agent}`, role `{role}`
  admin key       {admin_key}
  superadmin key  {superadmin_key}

  data         {data}
  policies     {policies}   edit one: in force within two seconds

Paste into another terminal, in this folder:

# ALLOW: the handbook is low, and the role may read it; the documents come back
{allow}

# DENY: payroll is critical; the sidecar stops it, and says why
{deny}

# VERIFY: both are in the audit trail, and its chain of hashes holds
{verify}

The same questions without a data source, as any agent framework may ask them:

# ALLOW
{evaluate_allow}

# DENY
{evaluate_deny}
"""
KEPT = "as you kept it"
JSON = "application/json"


class WelcomeKeys(NamedTuple):
    """The three keys, as the block names them and as its commands send them."""

    agent: str
    admin: str
    superadmin: str
    send_agent: str
    send_admin: str


def shown_keys(agent_key: str, first: FirstStart | None) -> WelcomeKeys:
    """The keys themselves, for the terminal of the person who started Sluice."""
    admin = first.admin_key if first else KEPT
    superadmin = (first and first.superadmin_key) or KEPT
    return WelcomeKeys(agent_key, admin, superadmin, agent_key, admin)


def hidden_keys(data_dir: Path, first: FirstStart | None) -> WelcomeKeys:
    """Where the keys are, for output that goes to a log (contract, section 6); the commands read
    them from there."""
    agent, file = data_dir / "agent.key", data_dir / "first-start.json"
    read_agent = f"$(cat {shlex.quote(str(agent))})"
    if first is None:
        return WelcomeKeys(f"in {agent}", KEPT, KEPT, read_agent, KEPT)
    pattern = r's/.*"admin_key": *"\([^"]*\)".*/\1/p'
    read_admin = f"$(sed -n '{pattern}' {shlex.quote(str(file))})"
    superadmin = f"in {file}" if first.superadmin_key else KEPT
    return WelcomeKeys(f"in {agent}", f"in {file}", superadmin, read_agent, read_admin)


def text(settings: UpSettings, keys: WelcomeKeys, policies: str) -> str:
    """The block to print once everything is up."""
    return TEXT.format(
        source=settings.source_listen,
        sidecar=settings.sidecar_listen,
        control=settings.control_listen,
        chroma=settings.chroma_listen,
        agent_key=keys.agent,
        agent=AGENT_ID,
        role=ROLE,
        admin_key=keys.admin,
        superadmin_key=keys.superadmin,
        data=settings.data_dir,
        policies=policies,
        allow=_query(settings.source_listen, "handbook"),
        deny=_query(settings.source_listen, "payroll"),
        verify=_request(settings.control_listen, "/v1/audit/verify", keys.send_admin),
        evaluate_allow=_evaluate(settings.sidecar_listen, keys.send_agent, "handbook"),
        evaluate_deny=_evaluate(settings.sidecar_listen, keys.send_agent, "payroll"),
    )


def _query(source: Address, collection: str) -> str:
    """Chroma's own client, pointed at the sidecar: nothing but the port tells it so."""
    return _python(
        "import chromadb; "
        f"kb = chromadb.HttpClient('{source.host}', {source.port}); "
        f"found = kb.get_collection('{collection}').query(query_embeddings=[{NEAREST}]); "
        "print(*found['documents'][0], sep='\\n')"
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
    """For `curl` where there is one, else for Python's own library. `key` stands in double quotes,
    so that the shell may read it from a file; a key itself holds nothing special to a shell."""
    url = f"http://{address}{path}"
    if shutil.which("curl"):
        words = ["curl", "-sS", "-w", "\\n", url]
        if body:
            words += ["-H", "Content-Type: application/json", "-d", body]
        return f'{shlex.join(words)} -H "X-API-Key: {key}"'
    data = f"{body!r}.encode()" if body else "None"
    headers = f"{{'X-API-Key': os.environ['KEY'], 'Content-Type': {JSON!r}}}"
    return f'KEY="{key}" ' + _python(
        f"import os, urllib.request as r; asked = r.Request({url!r}, {data}, {headers}); "
        "print(r.urlopen(asked).read().decode())"
    )


def _python(code: str) -> str:
    here = os.path.relpath(sys.executable)
    python = shlex.quote(sys.executable if here.startswith("..") else here)
    # In double quotes it still reads as Python, where the shell finds nothing of its own in it.
    plain = not set('"$`!') & set(code)
    return f'{python} -c "{code}"' if plain else f"{python} -c {shlex.quote(code)}"
