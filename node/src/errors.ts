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

/**
 * What is known of the effects of a request of ours: it was never sent (`not_sent`), the peer said that it was
 * cancelled (`cancelled`), its response came, perhaps after we had given it up (`completed`), or the peer has not
 * said (`unknown`): then it may have done all of its work, or nothing.
 */
export type Outcome = 'not_sent' | 'cancelled' | 'completed' | 'unknown';

const OUTCOMES: readonly Outcome[] = ['unknown', 'not_sent', 'cancelled', 'completed', 'unknown'];

export function outcomeOf(code: number): Outcome {
	return OUTCOMES[code] ?? 'unknown';
}

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
	/** For a call that an `AbortSignal` cancelled: what that was aborted with. */
	readonly abortReason: unknown;
	/** For a call: what was known of its effects when it was cancelled; its `outcome` may know more by now. */
	readonly outcome: Outcome | undefined;

	constructor(cause: Cause, reason?: string, call?: { outcome: Outcome; abortReason?: unknown }) {
		super(`The request was cancelled (${cause})`);
		this.cause = cause;
		this.reason = reason;
		this.abortReason = call?.abortReason;
		this.outcome = call?.outcome;
	}
}

/** A call took too long: it made no progress for `idleMs`, or did not end within `totalMs`. */
export class TimeoutError extends Error {
	override readonly name = 'TimeoutError';
	readonly code = 'ETIMEDOUT';

	/** @param outcome what was known of its effects then */
	constructor(readonly outcome: Outcome) {
		super('The call timed out');
	}
}

/** The connection was over before a call had its response. */
export class DisconnectedError extends Error {
	override readonly name = 'DisconnectedError';
	readonly code = 'ECONNRESET';

	/** @param outcome what was known of its effects then */
	constructor(readonly outcome: Outcome) {
		super('The connection is over');
	}
}

/** The peer answered a call with a JSON-RPC error. */
export class RpcError extends Error {
	override readonly name = 'RpcError';

	constructor(
		/** The error's code. */
		readonly code: number,
		message: string,
		/** What the peer gave beside it. */
		readonly data?: unknown,
	) {
		super(message);
	}
}
