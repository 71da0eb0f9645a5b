-- What operators have done, the last of it first. $1 tenant or null, $2 who or null, $3 action or null, or its part before or behind the
-- dot, $4 job or null, also as one of a selection, $5 and $6 the time and the id that the list goes on behind, or null, $7 how many, $8 subject or null.
SELECT id, at, who, action, coalesce(tenant_id, ''), coalesce(job_id, 0), coalesce(subject, ''), detail
FROM tenure.audit
WHERE ($1::text IS NULL OR tenant_id = $1) AND ($8::text IS NULL OR subject = $8) AND ($2::text IS NULL OR who = $2)
  AND ($3::text IS NULL OR action = $3 OR $3 = ANY (string_to_array(action, '.'))) AND ($4::bigint IS NULL OR job_id = $4 OR detail->'ids' @> to_jsonb($4::bigint::text))
  AND ($5::timestamptz IS NULL OR (at, id) < ($5, $6::bigint))
ORDER BY at DESC, id DESC
LIMIT $7;
