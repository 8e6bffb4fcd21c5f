"""A Kubernetes cluster as Sluice sees it: a key set, served over HTTP or in a file, and the
ServiceAccount tokens that it signs. A test can make a token wrong in any way."""

from __future__ import annotations

import base64
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

ISSUER = "https://kubernetes.default.svc.cluster.local"
RSA, OTHER_RSA = (rsa.generate_private_key(65537, 2048) for _ in range(2))
EC = ec.generate_private_key(ec.SECP256R1())
P384 = ec.generate_private_key(ec.SECP384R1())
RSA_KID, EC_KID = "rsa-1", "ec-1"

Sign = Callable[[bytes], bytes]


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def number(value: int, size: int | None = None) -> str:
    return b64(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


def rs256(data: bytes, key: rsa.RSAPrivateKey = RSA) -> bytes:
    return key.sign(data, padding.PKCS1v15(), hashes.SHA256())


def es256(data: bytes, key: ec.EllipticCurvePrivateKey = EC) -> bytes:
    r, s = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
    size = (key.key_size + 7) // 8
    return r.to_bytes(size, "big") + s.to_bytes(size, "big")


def rsa_jwk(key: rsa.RSAPrivateKey = RSA, kid: str = RSA_KID) -> dict[str, Any]:
    public = key.public_key().public_numbers()
    jwk = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": kid}
    return {**jwk, "n": number(public.n), "e": number(public.e)}


def ec_jwk(key: ec.EllipticCurvePrivateKey = EC, kid: str = EC_KID) -> dict[str, Any]:
    public = key.public_key().public_numbers()
    jwk = {"kty": "EC", "use": "sig", "crv": "P-256", "kid": kid}
    return {**jwk, "x": number(public.x, 32), "y": number(public.y, 32)}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys or (rsa_jwk(), ec_jwk()))}).encode()


def claims(
    account: str = "loans", namespace: str = "lending", pod: str = "", **changed: Any
) -> dict[str, Any]:
    """Return the claims that the API server (1.36) writes into a projected token; a value of None
    is left out."""
    now, pod = int(time.time()), pod or f"{account}-0"
    found = {
        "aud": ["sluice"],
        "exp": now + 600,
        "iat": now,
        "iss": ISSUER,
        "jti": str(uuid.uuid4()),
        "kubernetes.io": {
            "namespace": namespace,
            "node": {"name": "node-1", "uid": str(uuid.uuid4())},
            "pod": {"name": pod, "uid": f"{pod}-{namespace}"},
            "serviceaccount": {"name": account, "uid": f"uid-{account}"},
        },
        "nbf": now,
        "sub": f"system:serviceaccount:{namespace}:{account}",
        **changed,
    }
    return {name: value for name, value in found.items() if value is not None}


def token(
    payload: dict[str, Any] | bytes | None = None,
    header: dict[str, Any] | bytes | None = None,
    sign: Sign = rs256,
) -> str:
    """Return a signed token. Bytes are taken as they are, to write what `json` would not."""
    payload = claims() if payload is None else payload
    header = {"alg": "RS256", "kid": RSA_KID} if header is None else header
    signed = ".".join(
        b64(part if isinstance(part, bytes) else json.dumps(part).encode())
        for part in (header, payload)
    )
    return f"{signed}.{b64(sign(signed.encode()))}"


def pod_token(account: str = "loans", namespace: str = "lending", **fields: Any) -> str:
    return token(claims(account, namespace, **fields))


class KeySetServer:
    """Serves a key set, and counts how often it was asked for."""

    def __init__(self) -> None:
        self.body = key_set()
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked: list[dict[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append({"path": self.path, **dict(self.headers)})
                self.send_response(server.status)
                for name, value in server.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(server.body)))
                self.end_headers()
                self.wfile.write(server.body)

            def log_message(self, *args: Any) -> None:
                """Print nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/openid/v1/jwks"


@contextmanager
def serving_keys() -> Iterator[KeySetServer]:
    server = KeySetServer()
    thread = threading.Thread(target=server.http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()
        thread.join()
