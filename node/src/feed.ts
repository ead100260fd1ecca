/**
 * What comes over time, for whoever loops over it.
 */

/** How many items wait for a loop that is slow, or that nobody runs; the oldest goes first. */
const MAX = 1024;

export class Feed<T> implements AsyncIterableIterator<T> {
	#items: T[] = [];
	#waiting: ((result: IteratorResult<T>) => void)[] = [];
	#ended = false;

	push(item: T): void {
		if (this.#ended) return;
		const waiting = this.#waiting.shift();
		if (waiting !== undefined) {
			waiting({ done: false, value: item });
			return;
		}
		this.#items.push(item);
		if (this.#items.length > MAX) this.#items.shift();
	}

	/** Nothing more comes; what waits is still handed out, or not. */
	end(keep: boolean): void {
		this.#ended = true;
		if (!keep) this.#items = [];
		for (const waiting of this.#waiting) waiting({ done: true, value: undefined });
		this.#waiting = [];
	}

	async next(): Promise<IteratorResult<T>> {
		const item = this.#items.shift();
		if (item !== undefined) return { done: false, value: item };
		if (this.#ended) return { done: true, value: undefined };
		return new Promise((resolve) => this.#waiting.push(resolve));
	}

	/** Leaving one loop ends none that comes after it. */
	async return(): Promise<IteratorResult<T>> {
		return { done: true, value: undefined };
	}

	[Symbol.asyncIterator](): this {
		return this;
	}
}
