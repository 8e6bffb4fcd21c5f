"""What several protocols share: caches of what a data source said, names of sources, strict readers
of queries and members, document levels, filtered lists, and AWS signatures."""
