-- Has this connection told of jobs that SQL has enqueued: see tenure.notify_holder.
LISTEN tenure_enqueued;
