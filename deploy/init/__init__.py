"""`sluice init`: writes configuration, units and keys of an installation, and never replaces one.

run.py      the command and its arguments
files.py    writes files with their modes, and lists them
systemd.py  the files for a host with systemd
compose.py  the files for a host with Docker Compose or Podman
provision.py  `sluice provision`: the sample agent and the keys, through a running control API
"""
