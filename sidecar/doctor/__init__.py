"""`python -m sidecar.doctor --config FILE`: finds ways around this sidecar.

    context        what the checks examine: settings, users, listening sockets, packet-filter rules
    host           observes the host: the file system, `/proc`, `iptables-save`, connections
    iptables       parses the packet-filter rules that `iptables-save` prints
    packet_trace   traces a packet through these rules
    checks         the list of checks; the files users, files, listeners, direct_access, redirects
                   and names contain them
    finding        what a check found, rendered as text or JSON

The doctor reads files, opens connections and resolves names. It changes nothing and prints no
secret.
"""
