"""How Sluice is started: the `sluice` command, and the local launcher behind `sluice up`.

Imports neither service: they are started as processes, the same topology as in production.
"""
