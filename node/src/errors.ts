/**
 * Why work was cancelled, and the error that says so.
 */

/**
 * Why a token tripped: the `peer` cancelled the request, its `timeout` passed, the connection is gone
 * (`disconnect`), this process is ending (`shutdown`), or our own code cancelled it (`local`).
 */
export type Cause = 'peer' | 'timeout' | 'disconnect' | 'shutdown' | 'local';

/** By the code in the low bits of a state word; 0 is "has not tripped". */
const CAUSES: readonly (Cause | undefined)[] = [
	undefined,
	'peer',
	'timeout',
	'disconnect',
	'shutdown',
	'local',
];

export function causeOf(code: number): Cause | undefined {
	return CAUSES[code];
}

/**
 * What `checkpoint()` throws and `signal` is aborted with. Its `name` is `AbortError`, so that code which
 * knows the platform's own cancellation takes it for one.
 */
export class CancelledError extends Error {
	override readonly name = 'AbortError';
	readonly code = 'ABORT_ERR';
	/** Why. */
	override readonly cause: Cause;
	/** Why, in the words of whoever cancelled, if there were any. From the peer: not to be trusted. */
	readonly reason: string | undefined;

	constructor(cause: Cause, reason?: string) {
		super(`The request was cancelled (${cause})`);
		this.cause = cause;
		this.reason = reason;
	}
}
