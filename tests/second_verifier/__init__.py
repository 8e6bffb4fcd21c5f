"""A second verifier of export files, written from `policies/trail/README.md` alone."""
