/**
 * Cancellation for MCP servers that stops the work.
 *
 * `guard` puts a server under the engine, `current` finds a request's token, `StdioServerTransport` is the
 * SDKs' with the engine on the wire, and `Connection` is the engine alone, for transports of one's own.
 */

import native = require('./native.js');

export { type Call, type CallOptions, type CallState, call, type Progress } from './call.js';
export {
	DEFAULT_INHERITED_ENV_VARS,
	getDefaultEnvironment,
	type StdioClientOptions,
	StdioClientTransport,
	type StdioServerParameters,
} from './client.js';
export { current } from './context.js';
export {
	CancelledError,
	type Cause,
	DisconnectedError,
	type Outcome,
	RpcError,
	TimeoutError,
} from './errors.js';
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
export { prometheus, stats } from './stdio.js';
export { instrument } from './telemetry.js';
export type { Token } from './token.js';
export { StdioServerTransport } from './transport.js';
export type { Stats, WireOptions } from './wire.js';
export { type RunInWorkerOptions, runInWorker } from './workers.js';
export import Connection = native.Connection;
export import ConnectionToken = native.ConnectionToken;
export type ConnectionOptions = native.ConnectionOptions;
export type ReceiveVerdict = native.ReceiveVerdict;
export type SendVerdict = native.SendVerdict;
export type BeginRequest = native.BeginRequest;
export type BegunRequest = native.BegunRequest;
export type RefusedRequest = native.RefusedRequest;
export type OutputVerdict = native.OutputVerdict;
