/** A client for Tenure's API over HTTP. schema.d.ts, which is generated, has the types of every operation. */
import createClient, { type Client } from "openapi-fetch";
import type { components, paths } from "./schema.js";

export type { components, paths };

/** Calls operations by their method and path, as in `tenure.GET("/api/v1/jobs/{id}", …)`. */
export type Tenure = Client<paths>;

/**
 * Returns a client of the node at an address, such as https://tenure.example. The token is the secret of one of the
 * node's tokens; without one, nodes let in only programs on their own machine.
 */
export function connect(address: string, token?: string): Tenure {
  return createClient<paths>({ baseUrl: address, headers: token ? { Authorization: `Bearer ${token}` } : {} });
}

type Problem = components["schemas"]["ErrorModel"];

/** What a node answered that did not do what it was asked for. */
export class TenureError extends Error {
  constructor(
    readonly status: number,
    readonly problem: Partial<Problem>,
  ) {
    super(`${status}: ${problem.detail ?? problem.title ?? "no reason was given"}`);
    this.name = "TenureError";
  }
}

/** The data of an answer; if there is none because the node refused, a {@link TenureError} is thrown. */
export function need<T>(answer: { data?: T; error?: Problem; response: Response }): T {
  if (!answer.response.ok) {
    throw new TenureError(answer.response.status, answer.error ?? {});
  }
  return answer.data as T;
}
