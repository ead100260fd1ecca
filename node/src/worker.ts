/**
 * `countermand/worker`: for code that `runInWorker` runs.
 */

export { CancelledError, type Cause } from './errors.js';
export { current, type WorkerToken } from './worker-token.js';
