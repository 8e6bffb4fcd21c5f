"""Makes the files for a host with systemd: units, settings, and the keys of the control API.

The files are templates in `deploy/systemd`; only the path of the `sluice` program is filled in. The
keys of the sidecar and the agent are not made here: a running control API creates them, as the next
steps say.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from deploy.init.files import PUBLIC, SECRET, NewFile

TEMPLATES = Path(__file__).resolve().parent.parent / "systemd"
PROGRAM = "/opt/sluice/bin/sluice"
"""The path of `sluice` in the templates, which is replaced by the real one."""
KEYS = "etc/sluice/keys"
SIDECAR = "etc/sluice/sidecars/agent"
# Template: where it goes, with which mode.
PLACES = {
    "sluice-control.service": ("etc/systemd/system/sluice-control.service", PUBLIC),
    "sluice-sidecar@.service": ("etc/systemd/system/sluice-sidecar@.service", PUBLIC),
    "control.env": ("etc/sluice/control.env", SECRET),
    "sidecar.yaml": (f"{SIDECAR}/sidecar.yaml", PUBLIC),
}
# The units hide these folders from the services (`ProtectHome`), and so a program in them.
HIDDEN = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))  # noqa: S108


def files(program: Path) -> list[NewFile]:
    """Return the files for a host on which `sluice` is at `program`."""
    return [
        NewFile(path, (TEMPLATES / name).read_text("utf-8").replace(PROGRAM, str(program)), mode)
        for name, (path, mode) in PLACES.items()
    ]


def complaint(program: Path) -> str | None:
    """Return the reason why the units can't run `program`; None if they can."""
    if any(program.is_relative_to(folder) for folder in HIDDEN):
        return f"the units hide the folder of `{program}` from the services"
    # systemd splits a command line at spaces, and expands `%` and `$`.
    if set(str(program)) & set(" \t\"'\\%$"):
        return f"`{program}` has a character that systemd does not take literally"
    return None


def next_steps(folder: Path, program: Path) -> str:
    """Return the operator's next steps as text, with commands to paste. With the default settings
    the commands work without changes."""
    copied = f"# {folder} stands for /: cp -a {quote(str(folder))}/. /\n"
    moved = "" if folder == Path("/") else copied
    return f"""\
Next steps:

{moved}# 1. read /etc/sluice/control.env: a database (for PostgreSQL, run its `migrate`), TLS, Redis
# 2. start the control API
systemctl daemon-reload
systemctl enable --now sluice-control

# 3. register the agent, and create its keys and the sidecar's
export SLUICE_KEY_FILE=/{KEYS}/admin.key
{program} agents register --id agt_example --role example_role
{program} agents submit agt_example
{program} agents approve agt_example
{program} keys create --name 'sidecar agent' --scope sidecar --for-agent agt_example \
--out /{SIDECAR}/sidecar.key
{program} keys create --name agt_example --scope evaluate --agent agt_example \
--out /{SIDECAR}/agent.key

# 4. describe its sources in /{SIDECAR}/sidecar.yaml, and start the sidecar
systemctl enable --now sluice-sidecar@agent

# 5. open the console at the address that this prints, and sign in with the key in
# /{KEYS}/admin.key; by TLS, set SLUICE_CONSOLE_URL in control.env first
sed 's|.*|http://&:8700/console|' /var/lib/sluice-control/console-host

Keep a copy of /{KEYS}: without log.key, a backup of the database can't be restored.
"""
