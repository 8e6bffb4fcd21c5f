"""Several processes on one port: a supervisor that binds, starts and watches; workers that serve.

supervise   binds, starts, restarts and drains; serves nothing and opens no database
place       what a worker is told on its command line
siblings    a scrape of one worker answers for all
"""
