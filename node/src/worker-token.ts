/**
 * The token of the request that a worker works for, in the worker's thread. It reads the word that the wire
 * thread writes: neither this thread's loop nor the main thread's has to turn.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import { CancelledError, type Cause, causeOf } from './errors.js';
import { type Address, codeOf, liveWord, Words } from './words.js';

/** A request's cancellation, as a worker sees it. */
export interface WorkerToken {
	/** Whether it has tripped. Takes nanoseconds, and is true at once, also while the main thread is busy. */
	readonly cancelled: boolean;
	/** Why it tripped. */
	readonly cause: Cause | undefined;
	/** Throws a `CancelledError` if the token has tripped. */
	checkpoint(): void;
}

class SharedToken implements WorkerToken {
	readonly #page: Uint32Array;
	readonly #slot: number;
	readonly #live: number;

	constructor({ tree, slot, serial }: Address) {
		this.#page = new Words(tree).page(slot);
		this.#slot = slot;
		this.#live = liveWord(serial);
	}

	get #code(): number {
		return codeOf(this.#page, this.#slot, this.#live);
	}

	get cancelled(): boolean {
		return this.#code !== 0;
	}

	get cause(): Cause | undefined {
		return causeOf(this.#code);
	}

	checkpoint(): void {
		const { cause } = this;
		if (cause !== undefined) throw new CancelledError(cause);
	}
}

const storage = new AsyncLocalStorage<WorkerToken | undefined>();

/** The token of the request for which this worker was started; `undefined` where there is none. */
export function current(): WorkerToken | undefined {
	return storage.getStore();
}

/** Calls `fn` for the token that has its word at `address`. */
export function working<R>(address: Address | undefined, fn: () => R): R {
	return storage.run(address === undefined ? undefined : new SharedToken(address), fn);
}
