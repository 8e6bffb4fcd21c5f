"""`sluice up`: runs all of Sluice on one machine, with a sample data source, to try it out.

    settings    the addresses and the data directory
    ports       chooses free ports, reports taken ones, and holds them for the children
    processes   starts, watches and stops the child processes, and shows their warnings
    listening   finds out which process listens on an address
    samples     the content of the sample data source, and the sample policies
    provision   creates the keys and the agent through the control API
    welcome     the text that is printed when everything is up
    up          the whole sequence, and the sidecar's settings file

Requests to the children go through `policies.ground.process.api_client`, as the operator's do. No
service imports this package, and it imports no service.
"""
