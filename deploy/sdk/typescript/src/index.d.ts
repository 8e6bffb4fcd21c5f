export type Sensitivity = "low" | "medium" | "high" | "critical";

/** What Sluice decided and recorded. */
export declare class Decision {
  private constructor();
  readonly decision: "ALLOW" | "DENY";
  /** Where the audit trail has it. */
  readonly eventId: string;
  /** The policy that allowed, or the check that denied. */
  readonly policyName: string;
  readonly reason: string;
}

/** There is no ALLOW, so nothing was read. The message is written for a model: it says what
 * happened, and what to do next. */
export declare class NotAllowed extends Error {
  protected constructor(sourceId: string, text: string);
  readonly sourceId: string;
}

/** Sluice denied it. */
export declare class Denied extends NotAllowed {
  constructor(sourceId: string, decision: Decision);
  readonly decision: Decision;
  readonly eventId: string;
  readonly policyName: string;
  readonly reason: string;
}

/** No decision could be had: no answer in time, or one that is no decision. */
export declare class Unavailable extends NotAllowed {
  constructor(sourceId: string, problem: string);
  readonly problem: string;
}

export interface GuardOptions {
  /** Seconds for all of a check. 2 by default. */
  timeout?: number;
  /** For `https`: the certificate authorities to trust, in PEM, instead of Node's. */
  ca?: string | Uint8Array;
}

export interface CheckOptions {
  /** What is searched for, for the record. */
  query?: string;
  /** `sdk` by default. */
  sourceType?: string;
}

/** A source's id, or a function that makes it from the arguments of a call. */
export type Source<Values extends unknown[]> = string | ((...values: Values) => string);

/** A function behind a decision: async generators stay what they are, others give a promise. With
 * an `Answer`, a call may give that text instead. */
export type Guarded<Values extends unknown[], Result, Answer = never> =
  Result extends AsyncGenerator<infer Item, infer Last, infer Sent>
    ? (...values: Values) => AsyncGenerator<Item | Answer, Last, Sent>
    : (...values: Values) => Promise<Awaited<Result> | Answer>;

export interface ToolOptions<Values extends unknown[], Answers extends boolean> {
  /** By default `tool://` and the function's name. */
  source?: Source<Values>;
  sensitivity?: Sensitivity;
  /** Whether the message of what would be thrown is returned, so that the model reads it. */
  answer?: Answers;
}

/** Asks the sidecar (or the control API) at `url` for one agent in one role. */
export declare class Guard {
  /** Throws `TypeError` for a URL or a key that can't be one. */
  constructor(url: string, key: string, agentId: string, role: string, options?: GuardOptions);

  /** From `SLUICE_GUARD_URL`, `SLUICE_GUARD_AGENT_ID`, `SLUICE_GUARD_ROLE` and the file that
   * `SLUICE_GUARD_KEY_FILE` names, or without one the key in `SLUICE_GUARD_KEY`. Throws
   * `TypeError` with the name of what is absent. */
  static fromEnviron(environ: Readonly<Record<string, string | undefined>>): Guard;

  /** Resolves on an ALLOW only. Rejects with `Denied`, which has the decision, or `Unavailable`.
   * An object is always true in a condition, so that a DENY is not returned as in Python. */
  check(sourceId: string, sensitivity?: Sensitivity, options?: CheckOptions): Promise<Decision>;

  /** A wrapper: each call of the function needs an ALLOW for the source, and else rejects with
   * `Denied` or `Unavailable` before anything of the function runs. An async generator is checked
   * when its first item is asked for. */
  source(
    source: string,
    sensitivity?: Sensitivity,
  ): <Values extends unknown[], Result>(
    body: (...values: Values) => Result,
  ) => Guarded<Values, Result>;
  source<Values extends unknown[]>(
    source: (...values: Values) => string,
    sensitivity?: Sensitivity,
  ): <Result>(body: (...values: Values) => Result) => Guarded<Values, Result>;

  /** A function that will be an agent's tool, behind a decision. */
  tool<Values extends unknown[], Result, Answers extends boolean = false>(
    body: (...values: Values) => Result,
    options?: ToolOptions<Values, Answers>,
  ): Guarded<Values, Result, Answers extends true ? string : never>;

  /** Close the connections. Checks that wait, and later ones, reject with `Unavailable`. */
  close(): void;
}

export interface Acting {
  user?: string;
  session?: string;
  task?: string;
  /** Those of the request that the agent serves: what is left out above is read from `baggage`
   * (`sluice.user`, `sluice.session`, `sluice.task`), and `traceparent` and `tracestate` go on. */
  headers?: Readonly<Record<string, string | string[] | undefined>>;
}

/** Runs `callback`; within it, and in all that it awaits, every check says these. What is stated
 * nowhere stays as it is outside. Throws `TypeError` if the baggage states one of the three
 * twice. */
export declare function acting<Result>(who: Acting, callback: () => Result): Result;

/** The headers `baggage`, `traceparent` and `tracestate` of the current context, for requests of
 * the agent's own, as to a data source through the sidecar. */
export declare function propagationHeaders(): Record<string, string>;
