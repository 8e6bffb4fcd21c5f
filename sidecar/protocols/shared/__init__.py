"""What several protocols need: source names, aliases, path patterns, lists with elements taken out,
caches, AWS signatures. Knows no single protocol.
"""
