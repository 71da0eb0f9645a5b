-- Those of $1 that are no users of this server.
SELECT name FROM unnest($1::text[]) AS name WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) ORDER BY 1;
