"""The commands that a person runs beside the services: verify, report, policy, client, witness."""
