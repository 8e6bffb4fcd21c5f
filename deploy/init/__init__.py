"""`sluice init`: writes the configuration, units and keys of an installation. An existing file is
never replaced.

    run.py      the commands `sluice init` and `sluice provision`
    files.py    writes files with their modes
    systemd.py  the files for a host with systemd
    compose.py  the files for a host with Docker Compose or Podman
"""
