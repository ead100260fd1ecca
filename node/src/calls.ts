/**
 * Requests of our own over one wire, and who waits for them. What becomes of one was decided before it comes here.
 */

import { type Cause, causeOf, type Outcome, outcomeOf } from './errors.js';
import native from './native.js';

/** Who waits for a request of our own. Hears of its end once, and of nothing after it. */
export interface Caller {
	/** The response, as a line. */
	settled(line: string): void;
	/** A progress notification, as a line. */
	progressed(line: string): void;
	abandoned(cause: Cause, reason: string | undefined, outcome: Outcome): void;
}

/** Whether giving up a request was its end, and what it took. */
export type Abandoned = ReturnType<typeof native.callAbandon>;

export class Calls {
	readonly #handle: number;
	/** By the id of the request. */
	readonly #callers = new Map<number, Caller>();
	#over = false;

	/**
	 * @param handle the wire
	 * @param before writes what was sent before, which a request must not overtake
	 */
	constructor(
		handle: number,
		private readonly before: () => void,
	) {
		this.#handle = handle;
	}

	/** Makes a request. Returns its id, or why it was not made. */
	begin(caller: Caller, options: native.CallOptions): number | native.RefusedRequest {
		if (this.#over) return { refused: 'closed', message: 'the connection is closed' };
		this.before();
		const made = native.callBegin(this.#handle, options);
		if (typeof made === 'number') this.#callers.set(made, caller);
		return made;
	}

	/** Gives up a request. Unless it was `settled` before, that is its end, and its caller is told nothing more. */
	abandon(id: number, cause: Cause, reason: string | undefined): Abandoned {
		const abandoned = native.callAbandon(this.#handle, id, cause, reason);
		if (abandoned !== 'settled') this.#callers.delete(id);
		return abandoned;
	}

	/** Whether a request has been written; `undefined` once it is over. */
	sent(id: number): boolean | undefined {
		return native.callSent(this.#handle, id) ?? undefined;
	}

	/** What is known of the effects of a request that was given up, while that is remembered. */
	outcome(id: number): Outcome | undefined {
		return native.callOutcome(this.#handle, id) ?? undefined;
	}

	settled(id: number, line: string): void {
		this.#ended(id)?.settled(line);
	}

	progressed(id: number, line: string): void {
		this.#callers.get(id)?.progressed(line);
	}

	/** @param reason as JSON */
	abandoned(id: number, cause: number, outcome: number, reason: string): void {
		const given = JSON.parse(reason) as string | null;
		this.#ended(id)?.abandoned(causeOf(cause) as Cause, given ?? undefined, outcomeOf(outcome));
	}

	/** Nothing is left of the wire. */
	over(): void {
		this.#over = true;
	}

	/** Who waits for this request, which is over. */
	#ended(id: number): Caller | undefined {
		const caller = this.#callers.get(id);
		this.#callers.delete(id);
		return caller;
	}
}
