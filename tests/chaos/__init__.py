"""Makes faults while the whole system works, and checks what must hold under each of them."""
