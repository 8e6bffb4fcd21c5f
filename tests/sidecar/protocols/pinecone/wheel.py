"""The message classes of Pinecone's `VectorService`, from the wheel of its client 8.1.2: the last
one that has them. They are loaded by their path, since the lock's own `pinecone` is a newer one."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from tests import servers

_MODULE = "core/grpc/protos/db_data_2025_10_pb2.py"


def folders() -> list[Path]:
    """What has to be on Python's path for the client 8.1.2. Skips the calling test if it is
    absent."""
    return [servers.need(name).parent for name in ("pinecone-8", "pinecone-plugin-interface")]


@cache
def file() -> Any:
    """The descriptor of the file that defines the service."""
    path = servers.need("pinecone-8") / _MODULE
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.DESCRIPTOR


def methods() -> dict[str, Any]:
    """The descriptors of the methods, by name."""
    return dict(file().services_by_name["VectorService"].methods_by_name)


def message(name: str) -> Any:
    """The class of a message."""
    return GetMessageClass(file().message_types_by_name[name])
