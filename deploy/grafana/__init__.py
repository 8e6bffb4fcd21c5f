"""The Grafana dashboards. `python -m deploy.grafana` generates `fleet.json` and `agent.json`.

Needs the library grafana-foundation-sdk, which the test part of the lock installs.
"""
