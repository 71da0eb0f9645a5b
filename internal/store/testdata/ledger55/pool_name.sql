-- Gives this database its number and name, once; $1 number, $2 name.
INSERT INTO tenure.pool (number, name) VALUES ($1, $2) ON CONFLICT DO NOTHING;
