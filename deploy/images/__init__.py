"""Builds the container images.

`python -m deploy.images` runs the build. The other modules run inside it, as stages of the
Dockerfile, and know nothing of how it was started.
"""
