-- The statement that names the user $1; none: it was.
SELECT format('INSERT INTO tenure.runtime_user (user_name) VALUES (%L)', $1::text)
WHERE NOT EXISTS (SELECT FROM tenure.runtime_user WHERE user_name = $1);
