"""Lays a YAML file out in one way, and keeps its comments.

    source.py    the file as a tree in which every comment belongs to an entry
    comments.py  which entry a comment belongs to
    layout.py    the tree as text again, in the order of a schema's keys
    files.py     a file's text before and after, proven to mean the same, and how it is replaced

Not `ruamel.yaml`: it ties a comment to the key before it, so that sorting keys moves comments to
other keys.
"""
