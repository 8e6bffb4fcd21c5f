"""The views of the console's pages: one module per area, each with its part (`PAGES`) of the table
of pages."""
