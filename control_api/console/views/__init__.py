"""What each page shows and does: one module per area, each with its part of the table, `PAGES`."""
