"""How decisions reach each kind of target, and what counts as its acknowledgement."""
