"""Runs alembic's migrations on the connection that `control_api.store.schema.version` passes."""

from alembic import context

from control_api.store.schema.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # One transaction for all migrations: if one fails, the schema stays as it was.
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
