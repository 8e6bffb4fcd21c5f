"""Builds the container images.

`python -m deploy.images` starts the build. The other modules run inside it, as stages of the
Dockerfile, and don't depend on how it was started.
"""
