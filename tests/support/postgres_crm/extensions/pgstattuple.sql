CREATE EXTENSION pgstattuple;
