"""The settings of a sidecar as frozen dataclasses, a sentence a field. Reads no file and no
environment: that is `sidecar.config`.
"""
