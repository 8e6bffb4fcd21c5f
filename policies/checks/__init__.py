"""The ten checks of an evaluation, one file each; `order.py` says in which order they run."""
