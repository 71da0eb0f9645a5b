/**
 * A worker outside the cluster. It prints invoices until it is told to stop (SIGTERM):
 *
 *   node dist/examples/worker.js ADDRESS TOKEN
 */
import { connect, need, TenureError, type components } from "../tenure.js";

type Job = components["schemas"]["AcquiredOut"];

const jobs = 10; // at a time
const lock = 300; // seconds

const [address = "", token = ""] = process.argv.slice(2);
const tenure = connect(address, token);
const stopping = new AbortController();
process.once("SIGTERM", () => stopping.abort());
process.once("SIGINT", () => stopping.abort());

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

async function print(job: Job): Promise<unknown> {
  const { invoice } = job.args as { invoice: number };
  console.log(`${job.job} prints invoice ${invoice} of ${job.tenant}`);
  return { pages: 3 };
}

/** Says how a job ended until that is answered, or its lock is over. Returns why it was refused. */
async function end(job: Job, until: number, say: (signal: AbortSignal) => ReturnType<typeof tenure.POST>): Promise<string | undefined> {
  for (let ms = 500; ; ms = Math.min(2 * ms, 30_000)) {
    try {
      need(await say(AbortSignal.timeout(30_000)));
      return;
    } catch (e) {
      const status = e instanceof TenureError ? e.status : 0;
      if ([400, 413, 422].includes(status)) return (e as TenureError).message;
      console.error(job.job, e instanceof TenureError ? e.message : e);
      if (status === 404 || status === 409) return; // the lock was lost, maybe as an answer was: this job is not ours any more
      if (Date.now() + ms > until) return;
    }
    await pause(ms);
  }
}

async function handle(job: Job, until: number): Promise<void> {
  const own = { job: job.job, turn: job.turn, worker: job.worker };
  let failure: string | undefined;
  try {
    const output = await print(job);
    JSON.stringify(output); // throws if it is no JSON
    failure = await end(job, until, (signal) => tenure.POST("/api/v1/external/complete", { body: { ...own, output }, signal }));
  } catch (e) {
    failure = String(e);
  }
  if (failure === undefined) return;
  const error = failure.slice(0, 16_000); // an output that was refused, such as one that is too large, is a failure, too
  const refused = await end(job, until, (signal) => tenure.POST("/api/v1/external/fail", { body: { ...own, error }, signal }));
  if (refused !== undefined) console.error(job.job, refused);
}

const running = new Set<Promise<void>>();
while (!stopping.signal.aborted) {
  if (running.size === jobs) {
    await Promise.race(running);
    continue;
  }
  try {
    const { items } = need(
      await tenure.POST("/api/v1/external/acquire", {
        body: { topic: "invoice.print", worker: `printer-${process.pid}`, lock, max: jobs - running.size, wait: 20 },
        signal: stopping.signal, // jobs that are locked as it ends are released, uncharged
      }),
    );
    const until = Date.now() + lock * 1000;
    for (const job of items) {
      const one = handle(job, until).finally(() => running.delete(one));
      running.add(one);
    }
  } catch (e) {
    if (stopping.signal.aborted) break;
    console.error(e instanceof TenureError ? e.message : e);
    await pause(1000);
  }
}
await Promise.all(running);
