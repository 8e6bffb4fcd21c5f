"""What several protocols share: caches of what a data source said, names of sources, strict readers
of queries and members, JSON responses, document levels, and AWS signatures."""
