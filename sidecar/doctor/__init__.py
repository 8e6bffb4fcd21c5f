"""`python -m sidecar.doctor --config FILE`: finds ways around this sidecar.

    examination    what the checks examine, and what they found, rendered as text or JSON
    host           observes the host: the file system, `/proc`, packet-filter rules, connections
    iptables       parses the rules that `iptables-save` prints; nftables, those of `nft`
    packet_trace   traces a packet through these rules
    checks         the list of checks; files, direct_access, redirects, names and policy_set
                   contain them

The doctor reads files, opens connections and resolves names. It changes nothing and prints no
secret.
"""
