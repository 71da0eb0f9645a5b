-- The lock, as long as session $1 holds it under epoch $2, by Postgres' clock, and nobody has frozen the pool.
-- Claims of the lost are withdrawn and sessions declared dead in a frozen pool, too, and notes that only say how
-- things stand ask for holder and epoch alone: those statements have conditions of their own.
name = 'acquire' AND holder = $1 AND epoch = $2 AND NOT paused AND expires_at > clock_timestamp()
