"""`sluice up`: the whole of Sluice on one machine, to try out, with a sample data source.

    settings    where everything listens and lies
    ports       which of these ports are taken
    processes   the children: started, watched, stopped; none outlives the launcher
    calls       JSON over HTTP to the children
    samples     what the sample data source holds
    provision   the keys and the agent, made through the control API like anyone's
    sidecar     the sidecar's file
    welcome     what is printed when all is up
    up          the story from first to last

Nothing here is imported by a service, and no service is imported here.
"""
