"""How Amazon Bedrock knowledge bases is read: which requests retrieve, from which sources, and
how they are filtered.
"""
