/**
 * Reports of cancelled requests: one for each, when it is over, to whoever asked for them.
 */

import { debuglog } from 'node:util';
import type { Cause } from './errors.js';
import type { CancelReport as NativeReport } from './native.js';
import { parseId } from './token.js';

/** A cancelled request that is over. */
export interface CancelReport {
	/** The id, as the peer gave it. */
	readonly id: string | number | bigint;
	readonly method: string;
	/** The tool, where the method is `tools/call`. */
	readonly tool: string | undefined;
	readonly cause: Cause;
	/** Why, in the words of whoever cancelled. From the peer: not to be trusted. */
	readonly reason: string | undefined;
	/** From the cancel's being read to the handler's exit, in milliseconds; nothing if no handler had started. */
	readonly latencyMs: number | undefined;
}

/** One line for each, on stderr, with `NODE_DEBUG=countermand`. */
const log = debuglog('countermand');
const listeners = new Set<(report: CancelReport) => void>();

/**
 * Calls `listener` for each cancelled request when it is over. Returns a function that takes it back. With
 * `NODE_DEBUG=countermand` each is a line on stderr as well.
 */
export function onCancelled(listener: (report: CancelReport) => void): () => void {
	// Wrapped, so that one function given twice is called twice.
	const entry = (report: CancelReport) => listener(report);
	listeners.add(entry);
	return () => {
		listeners.delete(entry);
	};
}

/** Whether anybody wants to know. */
export function reporting(): boolean {
	return listeners.size > 0 || log.enabled;
}

export function tell(reports: NativeReport[]): void {
	for (const { id, method, tool, cause, reason, latencyMs } of reports) {
		const report = { id: parseId(id), method, tool, cause: cause as Cause, reason, latencyMs };
		// Of the peer, in part: nothing of it may end the line.
		const latency = latencyMs === undefined ? 'never started' : `${latencyMs.toFixed(1)} ms`;
		log(
			'cancelled id=%s tool=%j cause=%s reason=%j latency=%s',
			id,
			tool ?? method,
			cause,
			reason ?? null,
			latency,
		);
		for (const listener of listeners) {
			try {
				listener(report);
			} catch (error) {
				// A listener's mistake must not end the session of everybody else.
				process.emitWarning(error instanceof Error ? error : String(error));
			}
		}
	}
}
