"""What the sample data source holds: a small collection of each sensitivity, put there once.

The embeddings are given, four numbers each, so that no model is fetched to make them.
"""

from __future__ import annotations

from typing import NamedTuple

from deploy.local.calls import Calls

DATABASE = "/api/v2/tenants/default_tenant/databases/default_database"


class SampleCollection(NamedTuple):
    """A collection of the sample source; its name is also the plain name that policies use."""

    name: str
    sensitivity: str
    documents: tuple[str, ...]


COLLECTIONS = (
    SampleCollection(
        "handbook",
        "low",
        (
            "Goods may be returned within 30 days, unused and in their box.",
            "Support is open from 8 to 18 o'clock; outside of that a form takes the question.",
            "A refund goes to the card that paid, within five working days.",
        ),
    ),
    SampleCollection(
        "products",
        "medium",
        (
            "Kettle K2: 1.7 litres, 2200 W; the lid's hinge of lots before 24-117 is recalled.",
            "Lamp L4: 9 W, 2700 K; margin 41 percent at the present price.",
            "Scale S1: 5 kg in steps of 1 g; to be replaced by S2 next spring.",
        ),
    ),
    SampleCollection(
        "contracts",
        "high",
        (
            "Supplier Aldermoor: 14 percent rebate above 10 000 units a quarter.",
            "Carrier Northway: notice of three months to the end of a quarter.",
        ),
    ),
    SampleCollection(
        "payroll",
        "critical",
        (
            "Employee 1001: grade 7, 4 812.00 a month.",
            "Employee 1002: grade 9, 6 240.00 a month.",
        ),
    ),
)
NEAREST = [1.0, 0.0, 0.0, 0.0]
"""An embedding to query by: the first document of a collection is the nearest to it."""


def seed(chroma: Calls) -> int:
    """Makes the collections that are absent; answers how many were made."""
    made = 0
    for collection in COLLECTIONS:
        wanted = {"name": collection.name, "get_or_create": True}
        place = (
            f"{DATABASE}/collections/{chroma.want('POST', f'{DATABASE}/collections', wanted)['id']}"
        )
        # Asked for its documents, not for its name: killed between the two steps, the start before
        # this one left it empty.
        if chroma.want("GET", f"{place}/count") == 0:
            chroma.want("POST", f"{place}/add", _records(collection))
            made += 1
    return made


def _records(collection: SampleCollection) -> dict[str, object]:
    numbers = range(len(collection.documents))
    return {
        "ids": [f"{collection.name}-{number + 1}" for number in numbers],
        "documents": list(collection.documents),
        "embeddings": [[1.0, float(number), 0.0, 0.0] for number in numbers],
        "metadatas": [{"sensitivity": collection.sensitivity} for _ in numbers],
    }
