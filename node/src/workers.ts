/**
 * `runInWorker`: work that never yields, in a thread that can be ended.
 *
 * The pool is made when it is first used, keeps no process alive, and is given up when the connection ends.
 * How many jobs run at once is decided here, in the order in which they came; `piscina` keeps the threads.
 */

import { availableParallelism } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Transferable } from 'node:worker_threads';
import { current, within } from './context.js';
import native from './native.js';
import { onEnd } from './stdio.js';
import { type Token, TokenNode } from './token.js';
import type { Job } from './worker-host.js';

/** How a job is run in a worker. */
export interface RunInWorkerOptions {
	/** The token that stops it, in place of `current()`. */
	token?: Token;
	/** A signal that stops it as well. */
	signal?: AbortSignal;
	/** Which export of the file is called; its default, where this is not given. */
	name?: string;
	/** What moves to the worker instead of being copied. */
	transferList?: readonly Transferable[];
	/**
	 * How long the worker may still run after the trip, if it asks `current()` of `countermand/worker` and unwinds by
	 * itself. The caller does not wait for it. Without, it is ended at once.
	 */
	graceMs?: number;
}

/** A busy thread must not hold up all others, also on one processor. */
const THREADS = Math.max(2, availableParallelism());
/** How long a thread is kept for the next job, in milliseconds. */
const IDLE = 30_000;

let pool: Pool | undefined;

/**
 * Calls a function in a worker thread, and resolves with what it returns. `file` is a `file:` URL or an absolute
 * path; its default export, or the one that is named in the options, gets `data`, which is copied.
 *
 * When the token trips, the promise rejects at once with the error that `checkpoint()` throws, and the
 * thread is ended whatever it does, and replaced. A job that waits for a thread never starts.
 *
 * [Worker threads](https://nodejs.org/docs/latest-v20.x/api/worker_threads.html)
 */
export async function runInWorker<R = unknown>(
	file: string | URL,
	data?: unknown,
	options: RunInWorkerOptions = {},
): Promise<R> {
	const { token = current(), signal, name = 'default', transferList = [], graceMs = 0 } = options;
	token?.checkpoint();
	signal?.throwIfAborted();
	const url = urlOf(file);
	pool ??= within(undefined, () => new Pool());
	const lent = token instanceof TokenNode ? token.lend() : undefined;
	const running = pool.run({ file: url, name, data, token: lent }, transferList);
	if (lent !== undefined) {
		const close = () => native.tokenClose(lent.handle);
		running.done.then(close, close);
	}
	const stops: (() => void)[] = [];
	try {
		const tripped = new Promise<never>((_resolve, reject) => {
			const stop = (reason: unknown) => {
				reject(reason);
				running.stop(graceMs);
			};
			if (token !== undefined) stops.push(token.onCancel(() => stop(errorOf(token))));
			if (signal !== undefined) {
				const aborted = () => stop(signal.reason);
				signal.addEventListener('abort', aborted);
				stops.push(() => signal.removeEventListener('abort', aborted));
			}
		});
		return (await Promise.race([running.done, tripped])) as R;
	} finally {
		for (const forget of stops) forget();
		// What ended at the same moment is as cancelled as what was stopped.
		token?.checkpoint();
	}
}

/** The one error that stands for this cancel. */
function errorOf(token: Token): unknown {
	try {
		token.checkpoint();
		return undefined;
	} catch (error) {
		return error;
	}
}

function urlOf(file: string | URL): string {
	if (file instanceof URL || file.startsWith('file:')) return String(file);
	if (path.isAbsolute(file)) return pathToFileURL(file).href;
	throw new TypeError(`runInWorker() takes a file: URL or an absolute path, not '${file}'`);
}

/** A job that was given to the pool. */
interface Running {
	done: Promise<unknown>;
	/** Ends the job's thread, in `ms` at the latest. */
	stop(ms: number): void;
}

/** What is used of piscina, whose own declarations do not pass a strict compiler. */
interface Threads {
	run(job: Job, options: { signal: AbortSignal; transferList: Transferable[] }): Promise<unknown>;
	destroy(): Promise<void>;
	on(event: 'error', listener: (error: Error) => void): void;
}

class Pool {
	readonly #threads: Threads;
	readonly #waiting = new Set<() => void>();
	#busy = 0;
	#closing = false;

	constructor() {
		// Only now: most servers never need it.
		const { Piscina } = require('piscina') as { Piscina: new (options: object) => Threads };
		this.#threads = new Piscina({
			filename: path.join(__dirname, 'worker-host.js'),
			minThreads: 1,
			maxThreads: THREADS,
			idleTimeout: IDLE,
			// A thread that sleeps on an atomic between its jobs would hold up what they left to be done.
			atomics: 'disabled',
			recordTiming: false,
		});
		// A thread that dies between its jobs is no end of the session.
		this.#threads.on('error', (error: Error) => process.emitWarning(error));
		onEnd(() => this.#close());
	}

	run(job: Job, transferList: readonly Transferable[]): Running {
		const ending = new AbortController();
		const { signal } = ending;
		const run = async () => {
			await this.#place(signal);
			try {
				return await this.#threads.run(job, { signal, transferList: [...transferList] });
			} finally {
				this.#leave();
			}
		};
		const done = run();
		const stop = (ms: number) => {
			if (ms <= 0) return ending.abort();
			const timer = setTimeout(() => ending.abort(), ms).unref();
			const exited = () => clearTimeout(timer);
			done.then(exited, exited);
		};
		return { done, stop };
	}

	/** Waits for a turn. */
	async #place(signal: AbortSignal): Promise<void> {
		if (this.#busy >= THREADS) {
			await new Promise<void>((resolve, reject) => {
				const turn = () => {
					this.#waiting.delete(turn);
					resolve();
				};
				this.#waiting.add(turn);
				signal.addEventListener('abort', () => {
					this.#waiting.delete(turn);
					reject(signal.reason);
				});
			});
		} else {
			this.#busy++;
		}
	}

	/** Gives the turn to who waits longest. */
	#leave(): void {
		const [turn] = this.#waiting;
		if (turn !== undefined) {
			turn();
			return;
		}
		this.#busy--;
		if (this.#closing && this.#busy === 0) void this.#threads.destroy();
	}

	/** Takes no more jobs; those that no trip ends may end by themselves. */
	#close(): void {
		if (pool === this) pool = undefined;
		this.#closing = true;
		if (this.#busy === 0) void this.#threads.destroy();
	}
}
