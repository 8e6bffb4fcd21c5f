"""HTTP/2 without connections: its frames and header compression by a library, behind an interface
of ours (`session.py`), the limits on what a peer may send (`frame_limits.py`), and the translation
of heads from and to those of HTTP/1 (`heads.py`).
"""
