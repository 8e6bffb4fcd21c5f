-- PostgreSQL runs this once, at its first start. One role owns the schema; the other serves, and row-level security binds it.
CREATE ROLE sluice_owner LOGIN PASSWORD '@OWNER_PASSWORD@';
CREATE ROLE sluice LOGIN PASSWORD '@SERVICE_PASSWORD@';
CREATE DATABASE sluice OWNER sluice_owner;
