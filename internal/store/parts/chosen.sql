-- The jobs of a list's tenant $2, kind $3 and queue $4 that were made at $12 or later, and before $13; each of these may be null.
($2::text IS NULL OR tenant_id = $2) AND ($3::text IS NULL OR kind = $3) AND ($4::text IS NULL OR queue = $4)
AND ($12::timestamptz IS NULL OR created_at >= $12) AND ($13::timestamptz IS NULL OR created_at < $13)
