/**
 * A worker outside the cluster. It prints invoices until it is told to stop (SIGTERM):
 *
 *   node dist/examples/worker.js ADDRESS TOKEN
 */
import { connect, need, TenureError, type components } from "../tenure.js";

type Job = components["schemas"]["AcquiredOut"];

const [address = "", token = ""] = process.argv.slice(2);
const tenure = connect(address, token);
const stopping = new AbortController();
process.once("SIGTERM", () => stopping.abort());
process.once("SIGINT", () => stopping.abort());

async function print(job: Job): Promise<unknown> {
  const { invoice } = job.args as { invoice: number };
  console.log(`${job.job} prints invoice ${invoice} of ${job.tenant}`);
  return { pages: 3 };
}

async function handle(job: Job): Promise<void> {
  const lock = { job: job.job, turn: job.turn, worker: job.worker };
  let output: unknown;
  try {
    output = await print(job);
  } catch (e) {
    need(await tenure.POST("/api/v1/external/fail", { body: { ...lock, error: String(e) } }));
    return;
  }
  need(await tenure.POST("/api/v1/external/complete", { body: { ...lock, output } }));
}

while (!stopping.signal.aborted) {
  try {
    const { items } = need(
      await tenure.POST("/api/v1/external/acquire", {
        body: { topic: "invoice.print", worker: `printer-${process.pid}`, lock: 300, max: 10, wait: 20 },
        signal: stopping.signal, // jobs that are locked as it ends are released, uncharged
      }),
    );
    for (const job of items) {
      await handle(job);
    }
  } catch (e) {
    if (stopping.signal.aborted) break;
    console.error(e instanceof TenureError ? e.message : e); // 409: the lock was lost, and somebody else has the job
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
