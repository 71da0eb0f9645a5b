-- The lock, as long as session $1 holds it under epoch $2, by Postgres' clock, and nobody has frozen the pool.
name = 'acquire' AND holder = $1 AND epoch = $2 AND NOT paused AND expires_at > clock_timestamp()
