-- The queue that nodes give the kind of schedule s, if that says no other.
(SELECT q.queue FROM tenure.kind_queue q WHERE s.kinds_queue AND NOT s.external AND q.kind = s.kind)
