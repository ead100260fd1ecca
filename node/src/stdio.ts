/**
 * The wire on this process's own stdin and stdout: there is one, and the process ends with it.
 */

import type { Cause } from './errors.js';
import native from './native.js';
import { type Receiver, type Stats, Wire, type WireOptions } from './wire.js';
import { wireOf } from './wires.js';

/** How long the last frames may take when the process exits by itself, in milliseconds. */
const LAST_WORDS = 500;
const SIGNALS = ['SIGTERM', 'SIGINT'] as const;

let opened: Wire | undefined;
const ends = new Set<() => void>();

/**
 * Takes over stdin and stdout.
 *
 * @param falsyIds whether `0` and `""` are given to the SDK under another name, because SDK 1.x does
 * not find them when it is told of a cancel
 * @throws if they are taken already
 */
export function openStdio(receiver: Receiver, falsyIds: boolean, options: WireOptions = {}): Wire {
	for (const signal of SIGNALS) forgetDefault(signal);
	const connection = { ...options.connection, alias: { beyondF64: true, falsy: falsyIds } };
	const closed = (cause: Cause) => {
		receiver.closed(cause);
		for (const callback of ends) callback();
		ends.clear();
	};
	const wire = new Wire({ ...receiver, closed }, { brief: true, command: false }, (wake) =>
		native.openStdio({ ...options, connection }, wake),
	);
	process.on('exit', () => wire.flush(LAST_WORDS));
	opened = wire;
	return wire;
}

/**
 * Node's own handler ends the process before anything could unwind, and the engine's would call it. One
 * that this program has set stays.
 */
function forgetDefault(signal: NodeJS.Signals): void {
	const replaced = () => {};
	process.on(signal, replaced);
	process.off(signal, replaced);
}

/**
 * Counters and table sizes of the wire on this process's stdio, or of the wire of a transport, or of a client or server
 * that is connected to one; `undefined` before it is opened, and once nothing is left of it.
 */
export function stats(of?: object): Stats | undefined {
	return of === undefined ? opened?.stats() : wireOf(of)?.stats();
}

/**
 * The same in the text format of Prometheus; empty before the wire is opened.
 *
 * [Exposition formats](https://prometheus.io/docs/instrumenting/exposition_formats/)
 */
export function prometheus(): string {
	return opened?.prometheus() ?? '';
}

/** Calls this once, when the connection is over. */
export function onEnd(callback: () => void): void {
	ends.add(callback);
}
