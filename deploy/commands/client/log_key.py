"""`sluice log-key`: prints the public key that signs the audit trail, for `sluice verify --key`."""

from __future__ import annotations

import argparse
import base64
import hashlib
import sys

from deploy.commands.client.client import Client, common
from policies.ground.process.api_client import ServiceUnusable

PATH = "/v1/audit/log-keys"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints the public key that signs the audit trail, as `sluice verify --key` takes it "
        "(`sluice log-key > log.pub`). Its fingerprint goes to standard error: the SHA-256 of the "
        "key's 32 bytes, to compare over another channel."
    )
    common(parser, _log_key)


def _log_key(client: Client, options: argparse.Namespace) -> int:
    keys = client.api.request("GET", PATH).body
    try:
        text = keys["log_key"]
        fingerprint = hashlib.sha256(base64.b64decode(text, validate=True)).hexdigest()
    except (KeyError, TypeError, ValueError) as problem:
        raise ServiceUnusable(f"`{client.api.url}` answers without a public key") from problem
    client.out.document({**keys, "sha256": fingerprint}, text)
    if not options.json:
        print(f"sluice: its SHA-256 fingerprint is {fingerprint}", file=sys.stderr)
    return 0
