"""`sluice init`: writes configuration, units and keys of an installation, and never replaces one.

run.py      the command and its arguments
files.py    writes files with their modes, and says what it wrote
systemd.py  what a host with systemd needs
compose.py  what a host with Docker Compose or Podman needs
provision.py  `sluice provision`: the sample agent and the keys, through a running control API
"""
