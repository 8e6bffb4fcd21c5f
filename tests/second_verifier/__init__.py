"""A second verifier of export files, written from `policies/README.md` alone."""
