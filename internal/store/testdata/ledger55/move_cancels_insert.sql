-- Notes that somebody wants jobs ended. $1 ids.
INSERT INTO tenure.cancel_request (job_id) SELECT unnest($1::bigint[]) ON CONFLICT DO NOTHING;
