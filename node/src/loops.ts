/**
 * A checkpoint in any loop: iterables, async iterables and streams that end when a token trips, and are
 * closed then. What ends is the loop; a source that cannot be interrupted closes when it gets to it.
 */

import type { TokenNode } from './token.js';

/** A web stream, such as the body of a `Response`. */
export interface WebStream<T> {
	getReader(): {
		read(): Promise<{ done: boolean; value?: T | undefined }>;
		cancel(reason?: unknown): Promise<void>;
		releaseLock(): void;
	};
}

/** What can be looped over. */
export type Loopable<T> = AsyncIterable<T> | WebStream<T> | Iterable<T>;

export function guarded<T>(
	token: TokenNode,
	source: Loopable<T>,
): AsyncGenerator<T, void, undefined> | Generator<T, void, undefined> {
	if ('getReader' in Object(source)) return eachLater(token, ofWebStream(source as WebStream<T>));
	if (Symbol.asyncIterator in Object(source)) return eachLater(token, ofAsync(source as AsyncIterable<T>));
	if (Symbol.iterator in Object(source)) return each(token, source as Iterable<T>);
	throw new TypeError('token.guard() takes an iterable, an async iterable or a stream');
}

function* each<T>(token: TokenNode, source: Iterable<T>): Generator<T, void, undefined> {
	token.checkpoint();
	// A throw in the loop's body closes the source.
	for (const item of source) {
		token.checkpoint();
		yield item;
	}
}

/** A source of items that can be told to stop while one is awaited. */
interface Source<T> {
	next(): Promise<{ done?: boolean | undefined; value?: T | undefined }>;
	/** The loop was left: resolves when the source is closed. */
	leave(): Promise<unknown>;
	/** The token tripped: closes the source, and waits for nothing. */
	stop(reason: Error): void;
}

async function* eachLater<T>(token: TokenNode, source: Source<T>): AsyncGenerator<T, void, undefined> {
	let interrupt: ((error: Error) => void) | undefined;
	const forget = token.onCancel(() => interrupt?.(token.error()));
	let ended = false;
	try {
		for (;;) {
			token.checkpoint();
			const { done, value } = await new Promise<Awaited<ReturnType<typeof source.next>>>(
				(resolve, reject) => {
					interrupt = reject;
					source.next().then(resolve, (error) => {
						ended = true;
						reject(error);
					});
				},
			);
			interrupt = undefined;
			if (done) {
				ended = true;
				return;
			}
			token.checkpoint();
			yield value as T;
		}
	} finally {
		forget();
		if (token.cancelled) source.stop(token.error());
		else if (!ended) await source.leave();
	}
}

const ignore = () => {};

function ofWebStream<T>(stream: WebStream<T>): Source<T> {
	const reader = stream.getReader();
	const leave = (reason?: Error) => reader.cancel(reason).finally(() => reader.releaseLock());
	return {
		async next() {
			const item = await reader.read();
			if (item.done) reader.releaseLock();
			return item;
		},
		leave,
		stop: (reason) => void leave(reason).catch(ignore),
	};
}

function ofAsync<T>(source: AsyncIterable<T> & { destroy?: unknown }): Source<T> {
	const iterator = source[Symbol.asyncIterator]();
	const leave = async () => iterator.return?.();
	return {
		next: async () => iterator.next(),
		leave,
		stop: () => {
			// An iterator over a stream is busy until its next item comes: the stream itself is not.
			if (typeof source.destroy === 'function') source.destroy();
			void leave().catch(ignore);
		},
	};
}
