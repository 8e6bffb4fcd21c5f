"""The `sluice` command, the operator's commands (`client`), and the launcher behind `sluice up`
(`local`).

Imports neither service: it starts them as processes, as in production.
"""
