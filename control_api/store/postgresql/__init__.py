"""The store on PostgreSQL: connections, roles and transactions."""
