"""Everything around the two services: the `sluice` command, the commands that a person runs
(`commands`), `sluice up` for trying Sluice on one machine (`local`), and the ways to deploy the
services.

Imports neither service: it starts them as processes, as in production.
"""
