"""The agent's side: connections accepted, requests read from them one after the other, responses
written.
"""
