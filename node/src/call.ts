/**
 * Calls: requests that this program makes by itself, beside those of its SDK and over the same wire, each with a handle
 * that can be cancelled.
 *
 * Who won (response, cancel, timeout, the end) is the core's word; the handle says what it was told, once.
 */

import { onAbort } from './abort.js';
import type { Caller } from './calls.js';
import { current, holder, within } from './context.js';
import {
	CancelledError,
	type Cause,
	DisconnectedError,
	type Outcome,
	RpcError,
	TimeoutError,
} from './errors.js';
import { Feed } from './feed.js';
import type native from './native.js';
import { type Token, TokenNode } from './token.js';
import type { Wire } from './wire.js';
import { wireOf } from './wires.js';

/**
 * `queued`: not written yet; `running`: written, no response yet; `done`: it has its result; `failed`: the peer
 * answered with an error, or it could not be made; the others say why it was given up.
 */
export type CallState = 'queued' | 'running' | 'done' | 'failed' | 'cancelled' | 'timed_out' | 'disconnected';

/** Progress, as the peer reports it. */
export interface Progress {
	progress: number;
	total?: number;
	message?: string;
}

/** How a call is made, and what may end it. */
export interface CallOptions {
	/** Cancels it when aborted. Any number of calls may share one. What it is aborted with stays in this process. */
	signal?: AbortSignal;
	/**
	 * Cancels it when tripped, in the thread that trips it: a token of any connection. `current()` unless given; `null`
	 * for none.
	 */
	parent?: Token | null;
	/** Gives it up when there was neither progress nor a response for so many milliseconds. */
	idleMs?: number;
	/** Gives it up after so many milliseconds, whatever progress there is. */
	totalMs?: number;
	/** What the peer is told as the reason when `signal` or `dispose` cancels it; nothing unless given. */
	reason?: string;
	/** Whether the peer is asked for progress; true unless given. */
	progress?: boolean;
	/** Called with each progress, in the context in which the call was made. Never after the end. */
	onprogress?: (progress: Progress) => void;
}

/** A request that was made: what becomes of it, and how to cancel it. It is no promise: await its `result`. */
export interface Call<T = unknown> {
	/** Its id on the wire; `undefined` if it was never made, because it was cancelled before. */
	readonly id: number | undefined;
	readonly method: string;
	readonly state: CallState;
	/**
	 * What is known of its effects. May become `completed` or `cancelled` from `unknown` after the call was given up,
	 * when the peer's response comes late.
	 */
	readonly outcome: Outcome;
	/**
	 * Its result. Rejects with a `CancelledError` (an `AbortError`), a `TimeoutError`, a `DisconnectedError`, or the
	 * peer's `RpcError`. Settles once, and at once when the call is given up, whatever the peer does.
	 */
	readonly result: Promise<T>;
	/** Its progress, up to its end. The newest 1,024 wait for a loop that is slow. */
	readonly progress: AsyncIterableIterator<Progress>;
	/** Cancels it, and tells the peer, with this reason if one is given. False if it has ended. */
	cancel(reason?: string): boolean;
	/** Cancels it unless it has ended. */
	[Symbol.dispose](): void;
	/** Cancels it unless it has ended. */
	[Symbol.asyncDispose](): Promise<void>;
}

/** The peer says that it was cancelled. */
const REQUEST_CANCELLED = -32800;

/**
 * Makes a request over a wire of the engine's.
 *
 * @param at a started `StdioClientTransport` or `StdioServerTransport`, or a client or server that is connected to one
 * @param params an object, as JSON
 * @throws {TypeError} if that is neither, or the parameters are no object. What else can go wrong rejects `result`
 */
export function call<T = unknown>(
	at: object,
	method: string,
	params?: object,
	options: CallOptions = {},
): Call<T> {
	const wire = wireOf(at);
	if (wire === undefined) {
		throw new TypeError(
			"call() takes a transport of countermand's that was started, or a client or server connected to one",
		);
	}
	if (params !== undefined && (params === null || Array.isArray(params) || typeof params !== 'object')) {
		throw new TypeError('the parameters of a request are an object');
	}
	return new Handle<T>(wire, method, params, options);
}

class Handle<T> implements Call<T>, Caller {
	id: number | undefined;
	readonly #wire: Wire;
	readonly #options: CallOptions;
	readonly #parent: TokenNode | undefined;
	readonly #context = holder();
	#end: Exclude<CallState, 'queued' | 'running'> | undefined;
	#outcome: Outcome = 'unknown';
	#value: T | undefined;
	#error: Error | undefined;
	#result: Promise<T> | undefined;
	#settle: (() => void) | undefined;
	#progress: Feed<Progress> | undefined;
	#forget: (() => void) | undefined;
	/** What the signal was aborted with. */
	#abortReason: unknown;

	constructor(
		wire: Wire,
		readonly method: string,
		params: object | undefined,
		options: CallOptions,
	) {
		this.#wire = wire;
		this.#options = options;
		const { parent = current() } = options;
		this.#parent = parent instanceof TokenNode ? parent : undefined;
		const { signal } = options;
		if (signal?.aborted) {
			this.#abortReason = signal.reason;
			this.#abandoned(causeOfAbort(signal.reason), options.reason, 'not_sent');
			return;
		}
		const begun = this.#begin(params);
		if (typeof begun === 'object') {
			this.#refused(begun);
			return;
		}
		this.id = begun;
		if (signal !== undefined) this.#forget = onAbort(signal, this);
	}

	#begin(params: object | undefined): number | native.RefusedRequest {
		const { idleMs, totalMs, progress = true } = this.#options;
		const token = this.#parent?.handle() ?? -1;
		const cause = this.#parent?.cause;
		// The request that it stands for has ended, after its cancel.
		if (token < 0 && cause !== undefined) return { refused: 'cancelled', message: '', cause };
		return this.#wire.calls.begin(this, {
			method: this.method,
			progress,
			...(params === undefined ? {} : { params: JSON.stringify(params) }),
			...(token < 0 ? {} : { parent: token }),
			...(idleMs === undefined ? {} : { idleMs }),
			...(totalMs === undefined ? {} : { totalMs }),
		});
	}

	get state(): CallState {
		if (this.#end !== undefined) return this.#end;
		return this.#sent() ? 'running' : 'queued';
	}

	get outcome(): Outcome {
		if (this.#end === undefined) return this.#sent() ? 'unknown' : 'not_sent';
		if (this.#outcome === 'unknown' && this.id !== undefined) {
			this.#outcome = this.#wire.calls.outcome(this.id) ?? 'unknown';
		}
		return this.#outcome;
	}

	/** One that is over in the core was sent, as far as is known here: what became of it is about to be told. */
	#sent(): boolean {
		return this.id === undefined || (this.#wire.calls.sent(this.id) ?? true);
	}

	get result(): Promise<T> {
		this.#result ??= new Promise((resolve, reject) => {
			this.#settle = () => (this.#error === undefined ? resolve(this.#value as T) : reject(this.#error));
			if (this.#end !== undefined) this.#settle();
		});
		return this.#result;
	}

	get progress(): AsyncIterableIterator<Progress> {
		return this.#feed();
	}

	#feed(): Feed<Progress> {
		if (this.#progress === undefined) {
			this.#progress = new Feed();
			if (this.#end !== undefined) this.#progress.end(true);
		}
		return this.#progress;
	}

	cancel(reason = this.#options.reason): boolean {
		return this.#abandon('local', reason);
	}

	[Symbol.dispose](): void {
		this.cancel();
	}

	async [Symbol.asyncDispose](): Promise<void> {
		this.cancel();
	}

	aborted(abortReason: unknown): void {
		this.#abortReason = abortReason;
		if (!this.#abandon(causeOfAbort(abortReason), this.#options.reason)) this.#abortReason = undefined;
	}

	/** The core's word is told at once; what it says about it among the events then finds nobody. */
	#abandon(cause: Cause, reason: string | undefined): boolean {
		if (this.#end !== undefined || this.id === undefined) return false;
		const abandoned = this.#wire.calls.abandon(this.id, cause, reason);
		if (abandoned === 'settled') return false;
		this.abandoned(cause, reason, abandoned === 'not_sent' ? 'not_sent' : 'unknown');
		return true;
	}

	settled(line: string): void {
		const { result, error } = JSON.parse(line) as {
			result?: T;
			error?: { code: number; message: string; data?: unknown };
		};
		if (error === undefined) {
			this.#value = result;
			this.#ended('done', 'completed');
		} else {
			this.#error = new RpcError(error.code, error.message, error.data);
			this.#ended('failed', error.code === REQUEST_CANCELLED ? 'cancelled' : 'completed');
		}
	}

	progressed(line: string): void {
		const { params } = JSON.parse(line) as { params: Progress & Record<string, unknown> };
		const { progressToken: _, _meta: __, ...progress } = params;
		this.#feed().push(progress);
		const { onprogress } = this.#options;
		if (onprogress === undefined) return;
		try {
			within(this.#context, onprogress, progress);
		} catch (error) {
			// A listener's mistake must not end what others wait for.
			process.emitWarning(error instanceof Error ? error : String(error));
		}
	}

	abandoned(cause: Cause, reason: string | undefined, outcome: Outcome): void {
		this.#abandoned(cause, reason, outcome);
	}

	#abandoned(cause: Cause, reason: string | undefined, outcome: Outcome): void {
		if (cause === 'timeout') {
			this.#error = new TimeoutError(outcome);
			this.#ended('timed_out', outcome);
		} else if (cause === 'disconnect' && !this.#cutElsewhere()) {
			this.#error = new DisconnectedError(outcome);
			this.#ended('disconnected', outcome);
		} else {
			this.#error = new CancelledError(cause, reason, { outcome, abortReason: this.#abortReason });
			this.#ended('cancelled', outcome);
		}
	}

	/** It was given up because another connection is over: that of the request for which it was made. */
	#cutElsewhere(): boolean {
		const parent = this.#parent;
		return parent?.cause === 'disconnect' && parent.owner().home !== this.#wire;
	}

	#refused({ refused, message, cause = 'local' }: native.RefusedRequest): void {
		if (refused === 'closed') this.#abandoned('disconnect', undefined, 'not_sent');
		else if (refused === 'cancelled') {
			this.#error = new CancelledError(cause, this.#parent?.reason, { outcome: 'not_sent' });
			this.#ended('cancelled', 'not_sent');
		} else {
			this.#error = Object.assign(new Error(message), { code: refused });
			this.#ended('failed', 'not_sent');
		}
	}

	#ended(end: Exclude<CallState, 'queued' | 'running'>, outcome: Outcome): void {
		this.#end = end;
		this.#outcome = outcome;
		this.#forget?.();
		this.#forget = undefined;
		// What came before the response is still told; who has given up wants to hear nothing.
		this.#progress?.end(end === 'done' || end === 'failed');
		this.#settle?.();
	}
}

/** `AbortSignal.timeout()` aborts with an error of this name. */
function causeOfAbort(reason: unknown): Cause {
	return (reason as { name?: unknown } | null | undefined)?.name === 'TimeoutError' ? 'timeout' : 'local';
}
