"""The settings of a sidecar as frozen dataclasses, with a sentence per field. Reads no file and no
environment: `sidecar.config` does.
"""
