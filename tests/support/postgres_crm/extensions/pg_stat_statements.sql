CREATE EXTENSION pg_stat_statements;
