/**
 * Enqueues a job for a worker outside the cluster, and waits for its end:
 *
 *   node dist/examples/enqueue.js ADDRESS TOKEN TENANT
 */
import { connect, need } from "../tenure.js";

const [address = "", token = "", tenant = ""] = process.argv.slice(2);
const tenure = connect(address, token);

const { id } = need(
  await tenure.POST("/api/v1/jobs", {
    params: { header: { "Idempotency-Key": "invoice:42" } }, // asking again does not add it again
    body: { tenant, kind: "invoice.print", args: { invoice: 42 }, external: true },
  }),
);
const ended = ["done", "dead", "cancelled", "business_error"];
for (;;) {
  const job = need(await tenure.GET("/api/v1/jobs/{id}", { params: { path: { id } } }));
  if (ended.includes(job.state)) {
    console.log(`${id} ${job.state}`);
    break;
  }
  await new Promise((resolve) => setTimeout(resolve, 200));
}
