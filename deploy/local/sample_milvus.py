"""Runs the sample Milvus of `sluice up --milvus`: the gRPC server of Milvus Lite, with the
collections that the sample Chroma has. Needs the extra `milvus`.

It is a process of its own, so that the launcher, which forks, has none of gRPC's threads.
"""

from __future__ import annotations

import argparse
import signal

from milvus_lite import CollectionSchema, DataType, FieldSchema, MilvusLite
from milvus_lite.adapter.grpc.server import run_server

from deploy.local.samples import COLLECTIONS, SampleCollection, embedding


def main() -> None:
    """Create the collections that are missing, fill those that are empty, and serve until SIGTERM
    or Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m deploy.local.sample_milvus")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", required=True, type=int)
    chosen = parser.parse_args()
    # The server drains at a KeyboardInterrupt, and would not at SIGTERM.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Before the port is open: the launcher takes it for the sign that the samples are there.
    with MilvusLite(chosen.data_dir) as database:
        for collection in COLLECTIONS:
            _seed(database, collection)
    run_server(chosen.data_dir, chosen.host, chosen.port)


def _seed(database: MilvusLite, collection: SampleCollection) -> None:
    if not database.has_collection(collection.name):
        # Without an index, which would have to be loaded at each start; the search is exact.
        database.create_collection(collection.name, _schema())
    made = database.get_collection(collection.name)
    # The number of entities, as with Chroma: a start that was killed may have left none.
    if made.num_entities == 0:
        made.insert([
            {
                "id": number + 1,
                "vector": embedding(number),
                "text": document,
                "sensitivity": collection.sensitivity,
            }
            for number, document in enumerate(collection.documents)
        ])  # fmt: skip


def _schema() -> CollectionSchema:
    return CollectionSchema(
        fields=[
            FieldSchema(name="id", dtype=DataType.INT64, is_primary=True),
            FieldSchema(name="vector", dtype=DataType.FLOAT_VECTOR, dim=len(embedding(0))),
            FieldSchema(name="text", dtype=DataType.VARCHAR, max_length=200),
            FieldSchema(name="sensitivity", dtype=DataType.VARCHAR, max_length=20),
        ]
    )


if __name__ == "__main__":
    main()
