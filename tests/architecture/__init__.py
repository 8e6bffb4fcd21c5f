"""What must hold for the whole project: imports, layout, and descriptions."""
