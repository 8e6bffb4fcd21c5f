"""The common parts of several protocols: caches of data sources' answers, names of sources, strict
readers of queries and members, JSON responses, document levels, and AWS signatures."""
