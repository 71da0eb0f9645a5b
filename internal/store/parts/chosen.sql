-- The jobs of a list's tenant $2, kind $3 and queue $4, each of which may be null.
($2::text IS NULL OR tenant_id = $2) AND ($3::text IS NULL OR kind = $3) AND ($4::text IS NULL OR queue = $4)
