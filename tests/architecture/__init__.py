"""What must hold of the whole project: who imports whom, what lies where, what is described."""
