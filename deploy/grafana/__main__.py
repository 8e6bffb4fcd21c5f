"""`python -m deploy.grafana` writes the dashboards' JSON beside this file."""

from pathlib import Path

from deploy.grafana.agent import AGENT
from deploy.grafana.fleet import FLEET
from deploy.grafana.render import rendered

FOLDER = Path(__file__).parent
FILES = {FOLDER / "fleet.json": FLEET, FOLDER / "agent.json": AGENT}

if __name__ == "__main__":
    for path, board in FILES.items():
        path.write_text(rendered(board), encoding="utf-8")
        print(path.name)
