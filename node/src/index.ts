/**
 * Cancellation for MCP servers that stops the work.
 *
 * `guard` puts a server under the engine, `current` finds a request's token, `StdioServerTransport` is the
 * SDKs' with the engine on the wire, and `Connection` is the engine alone, for transports of one's own.
 */

import native = require('./native.js');

export { current } from './context.js';
export { CancelledError, type Cause } from './errors.js';
export { guard } from './guard.js';
export type {
	ChildTree,
	Exit,
	Redirect,
	RunOptions,
	RunResult,
	SpawnOptions,
	TreeOptions,
} from './process.js';
export { type CancelReport, onCancelled } from './reports.js';
export { instrument } from './telemetry.js';
export type { Token } from './token.js';
export { StdioServerTransport } from './transport.js';
export { prometheus, type Stats, stats, type WireOptions } from './wire.js';
export { type RunInWorkerOptions, runInWorker } from './workers.js';
export import Connection = native.Connection;
export import ConnectionToken = native.ConnectionToken;
export type ConnectionOptions = native.ConnectionOptions;
export type ReceiveVerdict = native.ReceiveVerdict;
export type SendVerdict = native.SendVerdict;
