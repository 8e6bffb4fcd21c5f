"""Writes the sidecar's settings file at each start, in the form that an operator would write."""

from __future__ import annotations

from pathlib import Path

from deploy.local.provision import AGENT_ID, ROLE, write_private
from deploy.local.samples import COLLECTIONS
from deploy.local.settings import UpSettings

ALIAS = "kb"
TEXT = """\
# `sluice up` writes this file at each start. Paths are relative to it.
id: sluice-up
control: http://{control}
key_file: sidecar.key
listen: {listen}
agent: {{id: {agent}, role: {role}, key_file: agent.key}}   # the agent behind port {port}
staleness_seconds: 30
spool: {{dir: spool, mode: durable, max_bytes: 1073741824}}
sources:
  - alias: {alias}
    kind: chroma
    upstream: http://{upstream}
    listen: {source}
    sensitivity: critical   # of everything that is not named below
    writes: deny
    defaults: {{user: someone-trying-sluice}}
    names:
{names}
"""


def write(settings: UpSettings) -> Path:
    """Write `<data dir>/sidecar.yaml`, and return its path."""
    database = f"chroma://{ALIAS}/default_tenant/default_database"
    names = [
        f"      {database}/{each.name}: {{source_id: {each.name}, sensitivity: {each.sensitivity}}}"
        for each in COLLECTIONS
    ]
    path = settings.data_dir / "sidecar.yaml"
    text = TEXT.format(
        control=settings.control_listen,
        listen=settings.sidecar_listen,
        agent=AGENT_ID,
        role=ROLE,
        port=settings.source_listen.port,
        alias=ALIAS,
        upstream=settings.chroma_listen,
        source=settings.source_listen,
        names="\n".join(names),
    )
    write_private(path, text)
    return path
