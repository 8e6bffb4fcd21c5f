"""What recorded traffic would have got under other policies: start a run, show it, cancel it."""
