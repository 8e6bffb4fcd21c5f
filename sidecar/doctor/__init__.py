"""`python -m sidecar.doctor --config FILE`: what could pass this sidecar by.

    scene        what there is to look at: settings, users, listening sockets, packet-filter rules
    machine      how it is looked at: the file system, `/proc`, `iptables-save`, connections
    tables       packet-filter rules as `iptables-save` tells them
    walk         what becomes of a packet by these rules
    table        the checks, in their order; one file each
    finding      what a check found, and how it is told

It reads, connects and resolves; it changes nothing, and tells no secret.
"""
