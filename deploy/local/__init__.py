"""`sluice up`: all of Sluice on one machine, with a sample data source, to try it out.

    settings    the addresses and the data directory
    ports       chooses free ports, and reports taken ones
    processes   starts, watches and stops the child processes
    log_tail    passes the children's warnings and errors on to the terminal
    calls       JSON over HTTP to the children
    samples     the content of the sample data source
    provision   creates the keys and the agent through the control API
    sidecar     writes the sidecar's settings file
    welcome     the text that is printed when everything is up
    up          the whole sequence

No service imports this package, and it imports no service.
"""
