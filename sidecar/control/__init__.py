"""The sidecar's dealings with the control API: a client, its clock, and the shipping of audit
records.

    client      HTTP requests with the sidecar's key
    clock       the control API's time, measured from its answers
    shipper     sends records from the spool until they are in the log
    log_client  appends records to the log, and verifies the signed receipt for each batch
"""
