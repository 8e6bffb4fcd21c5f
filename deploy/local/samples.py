"""The content of the sample data sources: one small collection for each sensitivity, and two
tables. Also chooses the folder of policy files for `sluice up`.

The embeddings are fixed, four numbers each, so that no model has to be downloaded.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from deploy.module_command import INSTALLED, PACKAGES
from policies.ground.process.api_client import ControlApiClient

DATABASE = "/api/v2/tenants/default_tenant/databases/default_database"


class SampleCollection(NamedTuple):
    """A collection of a sample data source. Policies refer to it by its name."""

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


POSTGRES_DATABASE, POSTGRES_LOGIN = "company", "sluice_sidecar"
"""The database of the sample PostgreSQL, and the role with which the sidecar logs in there."""


class SampleRelation(NamedTuple):
    """A table of the sample PostgreSQL, as `schema.table`. Policies refer to it by `source_id`."""

    name: str
    source_id: str
    sensitivity: str
    columns: str
    """Its columns, as `CREATE TABLE` has them."""
    rows: str
    """Its rows, as `VALUES` has them."""


RELATIONS = (
    SampleRelation(
        "public.tickets",
        "tickets",
        "medium",
        "id integer PRIMARY KEY, subject text NOT NULL",
        "(1, 'The kettle''s lid does not close'),"
        " (2, 'When is the lamp in stock again?'),"
        " (3, 'The refund has not arrived yet')",
    ),
    SampleRelation(
        "hr.salaries",
        "payroll",  # as the collection, which the sample policy denies
        "critical",
        "employee integer PRIMARY KEY, monthly numeric(8, 2) NOT NULL",
        "(1001, 4812.00), (1002, 6240.00)",
    ),
)


def embedding(number: int) -> list[float]:
    """Return the embedding of a collection's document with this number, counted from 0."""
    return [1.0, float(number), 0.0, 0.0]


NEAREST = embedding(0)
"""An embedding to query with: in each collection, the first document is the nearest to it."""


def seed(chroma: ControlApiClient) -> int:
    """Create the collections that are missing and fill those that are empty. Returns the number of
    collections filled."""
    filled = 0
    for collection in COLLECTIONS:
        # Idempotent: the collections of an earlier start are found again.
        body = {"name": collection.name, "get_or_create": True}
        created = chroma.request("POST", f"{DATABASE}/collections", body=body)
        path = f"{DATABASE}/collections/{created.body['id']}"
        # Check the number of documents, not whether the collection exists: a start that was killed
        # between the two steps leaves an empty collection.
        if chroma.request("GET", f"{path}/count").body == 0:
            chroma.request("POST", f"{path}/add", body=_records(collection))
            filled += 1
    return filled


def _records(collection: SampleCollection) -> dict[str, object]:
    numbers = range(len(collection.documents))
    return {
        "ids": [f"{collection.name}-{number + 1}" for number in numbers],
        "documents": list(collection.documents),
        "embeddings": [embedding(number) for number in numbers],
        "metadatas": [{"sensitivity": collection.sensitivity} for _ in numbers],
    }


PACKAGED = PACKAGES / "policies" / "definitions"


def policy_folder(environ: Mapping[str, str], data_dir: Path) -> Path:
    """Return the folder of policy files: the one in `SLUICE_POLICY_DIR`, else that of the samples.
    These are used in place in a checkout, and copied to the data directory from an installed
    Sluice."""
    if given := environ.get("SLUICE_POLICY_DIR"):
        return Path(given)
    # An upgrade replaces installed files, and their folder may be read-only: a copy can be edited.
    return copy_samples(data_dir / "policies") if INSTALLED else PACKAGED


def copy_samples(folder: Path) -> Path:
    """Copy the sample policies to `folder`, and return it. If the folder exists, nothing is copied,
    since someone may have edited the files."""
    if not folder.exists():
        # If we die before the rename, the next start copies again.
        unfinished = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        for file in sorted(PACKAGED.rglob("*.yaml")):
            target = unfinished / file.relative_to(PACKAGED)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        unfinished.rename(folder)
    return folder
