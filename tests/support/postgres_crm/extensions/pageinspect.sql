CREATE EXTENSION pageinspect;
-- Its own check is for superusers only, so an administrator wraps it.
CREATE FUNCTION api.page_of(text) RETURNS bytea LANGUAGE sql SECURITY DEFINER
    AS 'SELECT get_raw_page($1, 0)';
