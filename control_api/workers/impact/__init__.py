"""Impact runs in the background: recorded decisions are made again by other policies.

loop       takes up runs that wait, saves how far each has come, and ends it
process    reads and decides, in a process of its own
wire       what the two say to each other, a line of JSON each
"""
