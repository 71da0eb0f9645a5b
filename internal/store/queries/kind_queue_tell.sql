-- Says which queues kinds $1 give their jobs: $2, in the same order. In the kinds' order, so that nodes which start together do
-- not wait for each other in a circle.
INSERT INTO tenure.kind_queue (kind, queue)
SELECT k.kind, k.queue FROM unnest($1::text[], $2::text[]) AS k (kind, queue)
WHERE NOT EXISTS (SELECT FROM tenure.kind_queue q WHERE q.kind = k.kind AND q.queue = k.queue)
ORDER BY k.kind
ON CONFLICT (kind) DO UPDATE SET queue = EXCLUDED.queue;
